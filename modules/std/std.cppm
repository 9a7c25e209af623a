// zt.std — the standard library and Abseil, wrapped once: no other interface reads their headers.
module;

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <compare>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <ranges>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#ifdef ZT_STD_JSON
#include <nlohmann/json.hpp>
#endif

export module zt.std;

export {  // libstdc++'s containers look the placement form up where they are instantiated
  using ::operator new;
}

export namespace absl {
using absl::InlinedVector, absl::Status, absl::StatusCode, absl::StatusOr, absl::operator<,
    absl::operator<<;
using absl::operator==;
using absl::operator!=;
}  // namespace absl

#ifdef ZT_STD_JSON  // the program only, not the installed interface
export namespace nlohmann {
using nlohmann::basic_json, nlohmann::json, nlohmann::ordered_json;
}  // namespace nlohmann
#endif

export namespace std {
// algorithm, numeric
using std::adjacent_find, std::all_of, std::any_of, std::clamp, std::copy, std::copy_if,
    std::copy_n, std::count, std::count_if, std::equal, std::fill, std::fill_n, std::find,
    std::find_if, std::find_if_not, std::for_each, std::gcd, std::is_sorted, std::iota, std::lcm,
    std::lexicographical_compare, std::lower_bound, std::max, std::max_element, std::min,
    std::min_element, std::minmax, std::mismatch, std::nth_element, std::none_of, std::partial_sum,
    std::accumulate, std::partition, std::partition_point, std::remove, std::remove_if,
    std::reverse, std::rotate, std::search, std::sort, std::stable_partition, std::stable_sort,
    std::transform, std::unique, std::upper_bound, std::equal_range;
// array, span, bit, byte
using std::array, std::as_bytes, std::as_writable_bytes, std::bit_cast, std::bit_ceil,
    std::bit_floor, std::bit_width, std::byte, std::countl_zero, std::countr_zero,
    std::dynamic_extent, std::endian, std::has_single_bit, std::popcount, std::span, std::to_array,
    std::to_integer;
// atomic, threads
using std::atomic, std::atomic_flag, std::memory_order, std::memory_order_acq_rel,
    std::memory_order_acquire, std::memory_order_relaxed, std::memory_order_release,
    std::memory_order_seq_cst, std::adopt_lock, std::try_to_lock, std::defer_lock, std::call_once,
    std::condition_variable, std::lock_guard, std::mutex, std::once_flag, std::scoped_lock,
    std::thread, std::unique_lock;
// C
using std::abs, std::abort, std::atexit, std::ceil, std::exit, std::fclose, std::fflush, std::FILE,
    std::floor, std::fopen, std::fputs, std::fread, std::free, std::frexp, std::fscanf, std::fwrite,
    std::getenv, std::isalnum, std::isalpha, std::isdigit, std::isfinite, std::isinf, std::isnan,
    std::isspace, std::ldexp, std::llround, std::log2, std::malloc, std::memchr, std::memcmp,
    std::memcpy, std::memmove, std::memset, std::pow, std::printf, std::realloc, std::round,
    std::signbit, std::snprintf, std::sqrt, std::strcmp, std::strlen, std::strtod, std::strtol,
    std::strtoull, std::tolower, std::toupper, std::trunc, std::int16_t, std::int32_t, std::int64_t,
    std::int8_t, std::intmax_t, std::intptr_t, std::max_align_t, std::nullptr_t, std::ptrdiff_t,
    std::size_t, std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t, std::uintmax_t,
    std::uintptr_t;
// charconv
using std::chars_format, std::from_chars, std::from_chars_result, std::to_chars,
    std::to_chars_result;
// comparison, concepts, types
using std::assignable_from, std::common_type_t, std::conditional_t, std::constructible_from,
    std::convertible_to, std::copyable, std::decay_t, std::default_initializable, std::derived_from,
    std::enable_if_t, std::equality_comparable, std::false_type, std::floating_point, std::integral,
    std::integral_constant, std::invocable, std::invoke, std::invoke_result_t, std::is_arithmetic_v,
    std::is_constant_evaluated, std::is_convertible_v, std::is_enum_v, std::is_floating_point_v,
    std::is_integral_v, std::is_invocable_v, std::is_lvalue_reference_v,
    std::is_nothrow_move_constructible_v, std::is_same_v, std::is_signed_v,
    std::is_trivially_copyable_v, std::is_unsigned_v, std::is_void_v, std::make_signed_t,
    std::make_unsigned_t, std::partial_ordering, std::predicate, std::regular_invocable,
    std::remove_const_t, std::remove_cv_t, std::remove_cvref_t, std::remove_pointer_t,
    std::remove_reference_t, std::same_as, std::signed_integral, std::strong_ordering,
    std::true_type, std::type_identity_t, std::underlying_type_t, std::unsigned_integral,
    std::void_t, std::weak_ordering;
// containers
using std::deque, std::erase, std::erase_if, std::list, std::map, std::multimap, std::set,
    std::unordered_map, std::unordered_multimap, std::unordered_set, std::vector;
// exceptions
using std::bad_alloc, std::current_exception, std::errc, std::error_category, std::error_code,
    std::exception, std::exception_ptr, std::generic_category, std::invalid_argument,
    std::length_error, std::logic_error, std::make_error_code, std::make_error_condition,
    std::out_of_range, std::rethrow_exception, std::runtime_error, std::system_category,
    std::system_error, std::terminate, std::uncaught_exceptions;
// functional
using std::equal_to, std::function, std::greater, std::hash, std::less, std::minus, std::not_fn,
    std::plus, std::ref, std::reference_wrapper;
// iterators
using std::advance, std::back_inserter, std::begin, std::cbegin, std::cend,
    std::contiguous_iterator, std::data, std::distance, std::empty, std::end, std::input_iterator,
    std::inserter, std::istreambuf_iterator, std::iterator_traits, std::make_move_iterator,
    std::next, std::prev, std::rbegin, std::rend, std::reverse_iterator, std::size, std::ssize;
// limits, memory
using std::addressof, std::align, std::align_val_t, std::allocator, std::allocator_traits,
    std::construct_at, std::const_pointer_cast, std::default_delete, std::destroy, std::destroy_at,
    std::dynamic_pointer_cast, std::enable_shared_from_this, std::launder, std::make_shared,
    std::make_unique, std::make_unique_for_overwrite, std::nothrow, std::nothrow_t,
    std::numeric_limits, std::owner_less, std::shared_ptr, std::static_pointer_cast,
    std::uninitialized_copy, std::unique_ptr, std::weak_ptr;
// random
using std::mt19937, std::mt19937_64, std::random_device, std::uniform_int_distribution;
// streams
using std::basic_ostream, std::cerr, std::cin, std::cout, std::endl, std::fstream, std::getline,
    std::ifstream, std::ios, std::ios_base, std::istream, std::ofstream, std::ostream,
    std::streamoff, std::streamsize;
// strings
using std::basic_string, std::basic_string_view, std::char_traits, std::stoi, std::stol,
    std::stoull, std::string, std::string_view, std::to_string, std::u16string, std::u32string;
// sums, products
using std::apply, std::exchange, std::forward, std::forward_as_tuple, std::get, std::get_if,
    std::holds_alternative, std::ignore, std::in_place, std::in_place_t, std::in_place_type,
    std::in_place_type_t, std::in_place_index, std::index_sequence, std::initializer_list,
    std::integer_sequence, std::make_index_sequence, std::make_optional, std::make_pair,
    std::make_tuple, std::monostate, std::move, std::move_if_noexcept, std::nullopt, std::nullopt_t,
    std::optional, std::pair, std::piecewise_construct, std::swap, std::tie, std::tuple,
    std::tuple_element, std::tuple_element_t, std::tuple_size, std::tuple_size_v, std::variant,
    std::variant_size_v, std::variant_alternative_t, std::visit, std::declval, std::as_const;
// operators
using std::operator!=;
using std::operator&;
using std::operator&=;
using std::operator+, std::operator-, std::operator<, std::operator<<;
using std::operator<<=;
using std::operator<=;
using std::operator<=>;
using std::operator==;
using std::operator>;
using std::operator>=;
using std::operator>>;
using std::operator>>=;
using std::operator^;
using std::operator^=;
using std::operator|;
using std::operator|=;
using std::operator~;

namespace chrono {
using std::chrono::duration, std::chrono::duration_cast, std::chrono::hours,
    std::chrono::microseconds, std::chrono::milliseconds, std::chrono::minutes,
    std::chrono::nanoseconds, std::chrono::seconds, std::chrono::steady_clock,
    std::chrono::system_clock, std::chrono::time_point, std::chrono::operator+,
    std::chrono::operator-, std::chrono::operator*, std::chrono::operator/;
using std::chrono::operator==;
using std::chrono::operator<;
using std::chrono::operator<=>;
using std::chrono::operator<=;
using std::chrono::operator>;
using std::chrono::operator>=;
}  // namespace chrono

namespace filesystem {
using std::filesystem::absolute, std::filesystem::begin, std::filesystem::canonical,
    std::filesystem::copy_file, std::filesystem::create_directories,
    std::filesystem::create_directory, std::filesystem::create_symlink,
    std::filesystem::current_path, std::filesystem::directory_entry,
    std::filesystem::directory_iterator, std::filesystem::directory_options, std::filesystem::end,
    std::filesystem::equivalent, std::filesystem::exists, std::filesystem::file_size,
    std::filesystem::file_status, std::filesystem::file_time_type, std::filesystem::file_type,
    std::filesystem::filesystem_error, std::filesystem::is_directory, std::filesystem::is_empty,
    std::filesystem::is_regular_file, std::filesystem::is_symlink, std::filesystem::last_write_time,
    std::filesystem::path, std::filesystem::perms, std::filesystem::read_symlink,
    std::filesystem::recursive_directory_iterator, std::filesystem::remove,
    std::filesystem::remove_all, std::filesystem::rename, std::filesystem::resize_file,
    std::filesystem::space, std::filesystem::status, std::filesystem::symlink_status,
    std::filesystem::temp_directory_path, std::filesystem::weakly_canonical;
}  // namespace filesystem

namespace ranges {
using std::ranges::adjacent_find, std::ranges::all_of, std::ranges::any_of, std::ranges::begin,
    std::ranges::binary_search, std::ranges::borrowed_range, std::ranges::contiguous_range,
    std::ranges::copy, std::ranges::count, std::ranges::count_if, std::ranges::data,
    std::ranges::empty, std::ranges::end, std::ranges::equal, std::ranges::fill, std::ranges::find,
    std::ranges::find_if, std::ranges::for_each, std::ranges::forward_range,
    std::ranges::input_range, std::ranges::is_sorted, std::ranges::iterator_t,
    std::ranges::lower_bound, std::ranges::max, std::ranges::max_element, std::ranges::min,
    std::ranges::min_element, std::ranges::mismatch, std::ranges::mismatch_result,
    std::ranges::none_of, std::ranges::range, std::ranges::range_value_t, std::ranges::reverse,
    std::ranges::size, std::ranges::sized_range, std::ranges::sort, std::ranges::stable_sort,
    std::ranges::subrange, std::ranges::transform, std::ranges::unique, std::ranges::upper_bound;
namespace views {
using std::ranges::views::drop, std::ranges::views::filter, std::ranges::views::keys,
    std::ranges::views::reverse, std::ranges::views::take, std::ranges::views::transform,
    std::ranges::views::values;
}  // namespace views
}  // namespace ranges
namespace views = std::ranges::views;

namespace this_thread {
using std::this_thread::get_id, std::this_thread::sleep_for, std::this_thread::yield;
}  // namespace this_thread

inline namespace literals {
inline namespace string_view_literals {
using std::literals::string_view_literals::operator""sv;
}
inline namespace string_literals {
using std::literals::string_literals::operator""s;
}
inline namespace chrono_literals {
using std::literals::chrono_literals::operator""ms;
using std::literals::chrono_literals::operator""s;
}  // namespace chrono_literals
}  // namespace literals
}  // namespace std

// The names that <cstdint> and <cstddef> put into the global namespace.
export using ::int16_t;
export using ::int32_t;
export using ::int64_t;
export using ::int8_t;
export using ::size_t;
export using ::uint16_t;
export using ::uint32_t;
export using ::uint64_t;
export using ::uint8_t;

// What std::condition_variable is made of.
export using ::pthread_cond_wait;

// Comparisons of libstdc++'s iterators, found by argument-dependent lookup. Since GCC 16 they are
// friends of the iterators, and libc++ has none.
#if defined(_GLIBCXX_RELEASE) && _GLIBCXX_RELEASE < 16
export namespace __gnu_cxx {
using __gnu_cxx::operator==;
using __gnu_cxx::operator<=>;
using __gnu_cxx::operator-, __gnu_cxx::operator+;
}  // namespace __gnu_cxx
#endif

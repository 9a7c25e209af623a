// exhaustive_f32 — every one of the 2^32 f32 patterns to bf16, f16 and each f8, against
// convert_reference.h.
//
// All four f8 types, without and with saturation, each in blocks of 2^16 whose overflow is counted
// apart. Takes minutes, so it is no test of its own. Arguments: threads (default 2), then the CPU
// target's name (default: the best there is). Exit status 1 where a bit or a count differs.
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "convert_reference.h"

import zt.core;
import zt.transform;

namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;
constexpr std::uint64_t kBlocks = (std::uint64_t{1} << 32) / kBlock;

struct Tally {
  std::atomic<std::uint64_t> next{0}, wrong{0}, overflow{0}, wrong_counts{0};
  std::mutex print;
};

void Report(Tally& tally, const char* to, std::uint32_t pattern, std::uint64_t got,
            std::uint64_t want) {
  if (tally.wrong.fetch_add(1) >= 20) return;
  const std::lock_guard lock(tally.print);
  std::printf("f32 0x%08x to %s: 0x%llx, not 0x%llx\n", pattern, to,
              static_cast<unsigned long long>(got), static_cast<unsigned long long>(want));
}

void CheckBlocks(Tally& tally, const zt::reference::FloatFormat& to, bool saturate) {
  const zt::reference::FloatFormat& from = zt::reference::kFormats[1];
  const auto conversion =
      *zt::MakeConversion({zt::DType::kF32, ""}, *zt::ParseElementType(to.name),
                          saturate ? zt::OnOverflow::kSaturate : zt::OnOverflow::kInf);
  std::vector<std::uint32_t> in(kBlock);
  std::vector<std::byte> out(kBlock * static_cast<std::size_t>(to.width));
  for (std::uint64_t block = tally.next++; block < kBlocks; block = tally.next++) {
    for (std::size_t i = 0; i < kBlock; ++i) in[i] = static_cast<std::uint32_t>(block * kBlock + i);
    zt::NumericCounts counts;
    conversion->Apply(std::as_bytes(std::span(in)), out, counts);
    std::uint64_t overflow = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const auto want = zt::reference::IsNan(from, in[i])
                            ? zt::reference::Convert(from, to, in[i], saturate)
                            : zt::reference::FromValue(to, std::bit_cast<float>(in[i]), saturate);
      std::uint64_t got = 0;
      std::memcpy(&got, out.data() + i * static_cast<std::size_t>(to.width),
                  static_cast<std::size_t>(to.width));
      overflow += want.overflow ? 1 : 0;
      if (got != want.bits) Report(tally, to.name, in[i], got, want.bits);
    }
    tally.overflow += counts.overflow;
    if (overflow != counts.overflow || counts.nan_lost != 0) ++tally.wrong_counts;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (argc > 2) {
    std::int64_t chosen = 0;
    for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
      if (std::string(argv[2]) == hwy::TargetName(left & -left)) chosen = left & -left;
    }
    if (chosen == 0) {
      std::printf("no target %s on this machine\n", argv[2]);
      return 2;
    }
    hwy::SetSupportedTargetsForTest(chosen);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  bool good = true;
  for (const bool saturate : {false, true}) {
    for (const auto& to : zt::reference::kFormats) {
      if (to.width > 2) continue;
      Tally tally;
      std::vector<std::jthread> workers;
      for (int i = 0; i < threads; ++i) {
        workers.emplace_back([&] { CheckBlocks(tally, to, saturate); });
      }
      workers.clear();
      const auto number = [](const std::atomic<std::uint64_t>& of) {
        return static_cast<unsigned long long>(of.load());
      };
      std::printf(
          "f32 to %s, %s: %llu of 2^32 wrong; %llu overflow, counted wrong in %llu of %llu "
          "blocks\n",
          to.name, saturate ? "saturate" : "inf", number(tally.wrong), number(tally.overflow),
          number(tally.wrong_counts), static_cast<unsigned long long>(kBlocks));
      std::fflush(stdout);
      good = good && tally.wrong == 0 && tally.wrong_counts == 0;
    }
  }
  return good ? 0 : 1;
}

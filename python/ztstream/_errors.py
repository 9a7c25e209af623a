"""The package's exceptions. Each is also one of Python's own kinds, knows the file and the tensor, and can be pickled."""
import errno
import os


class Error(Exception):
    """What every exception of the package is.

    file: the file that the message names, or None.
    tensor: the tensor that it names, or None.
    """

    def __init__(self, message, file=None, tensor=None):
        super().__init__(message)
        self.message, self.file, self.tensor = message, file, tensor

    def __str__(self):
        return self.message

    def __reduce__(self):
        return type(self), (self.message, self.file, self.tensor)


class ArgumentError(Error, ValueError):
    """Something was asked for that cannot be: an unknown type, a shape that does not fit, an option out of range."""


class FormatError(Error, ValueError):
    """An input is malformed, truncated or contradicts itself."""


class UnsupportedError(Error, NotImplementedError):
    """An input is well formed, but of a kind that is not supported."""


class NotFoundError(Error, KeyError):
    """There is no tensor of that name."""


class ExistsError(Error, FileExistsError):
    """The output exists and may not be replaced: see overwrite=True."""


_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


class InputOutputError(Error, OSError):
    """The system refused: reading, writing, space, memory. errno and filename are those of an OSError, or None."""

    def __init__(self, message, file=None, tensor=None):
        super().__init__(message, file, tensor)
        self.errno, self.filename = _NUMBERS.get(message.rpartition(": ")[2]), file


class MissingError(InputOutputError, FileNotFoundError):
    """A file is not there."""


class NumericError(Error, ArithmeticError):
    """A number does not fit its target."""


class MisuseError(Error, RuntimeError):
    """A call came out of order: on a file that is closed, on a writer that is finished or belongs to another process."""


class CancelledError(Error, RuntimeError):
    """The call was cancelled."""


# By the status of the C interface, which is the program's exit status too.
BY_STATUS = {2: ArgumentError, 3: ExistsError, 4: FormatError, 5: UnsupportedError, 6: InputOutputError, 7: NumericError,
             9: NotFoundError, 70: MisuseError, 130: CancelledError}


# What would help, by the names of the library, as arguments of the package's own functions ...
OF_THE_LIBRARY = {
    "void_dtype": "name it with npy_void=",
    "format": "format= chooses a format",
    "variant": "variant= chooses one",
    "base": "base= names it",
    "follow_links": "follow_links=True allows that",
    "replace": "overwrite=True replaces it",
}
# ... and of those that run the program.
OF_THE_PROGRAM = {
    "exclude": "exclude= leaves it out",
    "rename": "rename= gives it another name",
    "dtype": "dtype= converts it",
    "dequantize": "dequantize= makes numbers of it",
    "allow_loss": "allow_loss=True drops fractions",
    "on_overflow": "choose on_overflow=\"inf\" or \"saturate\", or another type",
    "void_dtype": "name it with npy_void=",
    "replace": "force=True replaces it",
    "metadata": "no_metadata=True leaves them out",
    "frames": "chunk= sets their size",
    "memory": "memory= raises the limit",
    "format": "from_= chooses a format",
    "variant": "variant= chooses one",
    "base": "base= names it",
    "files": "files=\"all\" takes all of them",
    "follow_links": "follow_links=True allows that",
    "unsigned": "no_sign_request=True reads public buckets",
    "part_size": "part_size= sets its size",
    "shards": "shard_size= writes smaller files",
}


def make(status, message, file, tensor, advice, words):
    """The exception for a status, with what would help worded by one of the tables above."""
    kind = BY_STATUS.get(status, Error)
    if kind is InputOutputError and message.endswith(os.strerror(errno.ENOENT)):
        kind = MissingError
    message += "".join("; " + words[each] for each in advice if each in words)
    return kind(message, file or None, tensor or None)

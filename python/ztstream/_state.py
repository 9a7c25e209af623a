"""Nested states: dicts, lists and tuples of tensors and of plain values, as training keeps them, and back.

Their tensors are named by their paths, "optimizer.state.0.exp_avg"; plain values are attributes by theirs. The attribute KEY says
what lies at the paths between: {"containers": {path: "dict", "list", "tuple", or of a dict with whole numbers as keys these},
"others": attributes that are no values of the state}. ztstream gives files of torch.save the same.
"""
import collections.abc

from ._errors import ArgumentError, FormatError

KEY = "ztstream.state"
_PLAIN = (bool, int, float, str, bytes, type(None))


def _is_plain(value):
    return isinstance(value, _PLAIN) and not hasattr(value, "dtype")  # a float64 of numpy is a float, too


def _parent(name, containers):
    """The path of the container in which a name lies: the longest that begins it."""
    at = len(name)
    while (at := name.rfind(".", 0, at)) >= 0:
        if name[:at] in containers:
            return name[:at]
    return ""


class Flat:
    """A state as names, and what puts it together again: `values` and `containers`, which are whole when items() has ended."""

    def __init__(self, state):
        self._state, self.values, self.containers, self._parents = state, {}, {}, {}

    def items(self):
        """(name, tensor), one after the other."""
        yield from self._inside("", self._state, 0)
        for name, parent in self._parents.items():
            found = _parent(name, self.containers)
            if found != parent:
                raise ArgumentError(f"{name!r} is a key {name[len(parent) + bool(parent):]!r} of {parent or 'the state'!r}, and would be "
                                    f"taken for one of {found!r}; give one of them another key", None, name)

    def _inside(self, path, value, depth):
        if depth > 100:
            raise ArgumentError(f"{path!r} is nested deeper than 100 levels, or holds itself")
        if isinstance(value, collections.abc.Mapping):
            self.containers[path] = "dict"
            numbers, names = [], set()
            for key, each in value.items():
                if isinstance(key, int) and not isinstance(key, bool):
                    numbers.append(key)
                elif not isinstance(key, str):
                    raise ArgumentError(f"a key of {path or 'the state'!r} is {key!r}; keys are texts and whole numbers")
                if str(key) in names or not path and key == "":
                    raise ArgumentError(f"{path or 'the state'!r} has {str(key)!r} as a text and as a number, or a key without a name")
                names.add(str(key))
                yield from self._at(f"{path}.{key}" if path else str(key), path, each, depth)
                del each
            if numbers:
                self.containers[path] = numbers
            return
        self.containers[path] = "tuple" if isinstance(value, tuple) else "list"
        for number, each in enumerate(value):
            yield from self._at(f"{path}.{number}" if path else str(number), path, each, depth)

    def _at(self, name, parent, value, depth):
        if name in self._parents:
            raise ArgumentError(f"two values of the state have the name {name!r}", None, name)
        self._parents[name] = parent
        if isinstance(value, (list, tuple)) and all(map(_is_plain, value)):
            self.values[name] = list(value)
            if isinstance(value, tuple):
                self.containers[name] = "tuple"
        elif isinstance(value, (collections.abc.Mapping, list, tuple)):
            yield from self._inside(name, value, depth + 1)
        elif _is_plain(value):
            self.values[name] = value
        else:
            yield name, value

    def attributes(self, others):
        """Those of the file, beside `others` of the caller."""
        containers = {path: kind for path, kind in self.containers.items() if path or kind != "dict"}
        if not containers and not self.values:
            return dict(others)
        if KEY in self.values:
            raise ArgumentError(f"{KEY!r} is a name that ztstream uses: give that value of the state another", None, KEY)
        clash = {*self.values, KEY} & {*others}
        if clash:
            raise ArgumentError(f"{min(clash)!r} is a value of the state, and an attribute")
        return {**others, **self.values, KEY: {"containers": containers, **({"others": sorted(others)} if others else {})}}


def restored(tensors, attributes):
    """The state of which a file has these tensors and attributes: {name: tensor} where it is not nested."""
    if KEY not in attributes:
        return tensors
    try:
        described = attributes[KEY]
        containers = {"": "dict", **described["containers"]}
        others = {KEY, *described.get("others", ())}
        for kind in containers.values():
            if kind not in ("dict", "list", "tuple") and not all(type(number) is int for number in kind):
                raise ValueError
    except (TypeError, KeyError, ValueError, AttributeError):
        raise FormatError(f"the attribute {KEY!r}, which says how a state is nested, is malformed") from None
    values = {key: value for key, value in attributes.items() if key not in others}
    for path in [path for path, kind in containers.items() if kind == "tuple" and isinstance(values.get(path), list)]:
        values[path] = tuple(values[path])
        del containers[path]
    made = {path: {} for path in containers}

    def put(name, value):
        parent = _parent(name, containers)
        made[parent][name[len(parent) + 1:] if parent else name] = value

    for name, value in (*values.items(), *tensors.items()):
        put(name, value)
    for path in sorted(filter(None, containers), key=len, reverse=True):  # what lies in others before them
        put(path, _made(containers[path], made[path]))
    return _made(containers[""], made[""])


def _made(kind, inside):
    if kind == "dict":
        return inside
    if isinstance(kind, list):
        numbers = {str(number): number for number in kind}
        return {numbers.get(key, key): value for key, value in inside.items()}
    numbered = {int(key): value for key, value in inside.items() if key.isdigit()}
    if sorted(numbered) != list(range(len(inside))):  # some were left out
        return numbered
    return (tuple if kind == "tuple" else list)(numbered[i] for i in range(len(inside)))

"""Reads pickles into plain records, without running or importing anything in them.

The input cannot make reading slow, deep or large: few opcodes are allowed, and their number is limited,
lengths are bounded by the file, and only strings and small integers are hashed.
"""

import io
import pickletools
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tpd.core.types import Array
from tpd.guards.files import no_file

LARGEST_PICKLE = 64 * 2**20  # text takes up to four times its size in memory
MOST_OPCODES = 300_000
LARGEST_NUMBER = 2**63
CONTAINERS = {"builtins.set", "builtins.frozenset", "collections.OrderedDict", "collections.deque"}
NUMPY = re.compile(
    r"numpy\.(dtype|ndarray|random\..*|_?core\.multiarray\.(_reconstruct|scalar)|_?core\.numeric\._frombuffer)"
)
NUMBERS = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}
PLAIN = re.compile(r"(SHORT_)?(BIN)?(INT[12]?|LONG[14]?|FLOAT|STRING|BYTES8?|UNICODE8?)|BYTEARRAY8")
"""Opcodes that carry a value."""
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class RefusedPickleError(ValueError):
    """A pickle that is well-formed but not accepted; the message gives the reason."""


class PickledName(NamedTuple):
    """A class or function named in a pickle."""

    origin: str


@dataclass(eq=False)
class PickledObject:
    """A pickled object as a record: the name of its class, its arguments and its state.

    It is a placeholder for whatever the pickle names, and does nothing.
    """

    origin: str
    arguments: tuple[Any, ...]
    state: Any = None
    items: list[Any] = field(default_factory=list)
    """The elements appended to it, if it is a container."""
    mapping: dict[Any, Any] = field(default_factory=dict)
    """The items set in it, if it is a mapping."""


class PersistentId(NamedTuple):
    """A reference to data outside of the pickle."""

    value: Any


class InertUnpickler:
    """A stack machine for the opcodes of plain objects; all others are refused."""

    def __init__(self, content: io.BytesIO) -> None:
        self._content = content
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        """The stacks below each mark."""
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """Read the next pickle of the content."""
        for count, (opcode, argument, _) in enumerate(pickletools.genops(self._content)):
            if count >= MOST_OPCODES:
                raise RefusedPickleError(f"is too large a pickle: it has more than {MOST_OPCODES} opcodes")
            if opcode.name == "STOP":
                return self._stack.pop()
            if not (self._push(opcode.name, argument) or self._gather(opcode.name)):
                self._change(opcode.name, argument)
        raise EOFError

    def _push(self, opcode: str, argument: Any) -> bool:
        """Handle opcodes that push a value; returns whether it was one."""
        if PLAIN.fullmatch(opcode):
            self._stack.append(argument)
        elif opcode in CONSTANTS:
            self._stack.append(CONSTANTS[opcode])
        elif opcode in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"):
            self._stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}[opcode]())
        elif opcode == "GLOBAL":
            module, _, name = argument.partition(" ")
            self._stack.append(_named(module, name))
        elif opcode in ("GET", "BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[argument])
        elif opcode == "DUP":
            self._stack.append(self._stack[-1])
        elif opcode == "PERSID":
            self._stack.append(PersistentId(argument))
        elif opcode == "MARK":
            self._below.append(self._stack)
            self._stack = []
        else:
            return opcode in ("PROTO", "FRAME")
        return True

    def _gather(self, opcode: str) -> bool:
        """Handle opcodes that combine the top values into one; returns whether it was one."""
        pop = self._stack.pop
        if opcode in TUPLES:
            made: Any = tuple(reversed([pop() for _ in range(TUPLES[opcode])]))
        elif opcode in ("TUPLE", "LIST"):
            made = (tuple if opcode == "TUPLE" else list)(self._since_mark())
        elif opcode == "DICT":
            made = dict(_pairs(self._since_mark()))
        elif opcode == "FROZENSET":
            made = frozenset(map(_key, self._since_mark()))
        elif opcode == "STACK_GLOBAL":
            name, module = pop(), pop()
            made = _named(module, name)
        elif opcode in ("REDUCE", "NEWOBJ"):
            arguments, made_by = pop(), pop()
            made = _object(made_by, arguments)
        elif opcode == "NEWOBJ_EX":
            _, arguments, made_by = pop(), pop(), pop()
            made = _object(made_by, arguments)
        elif opcode == "OBJ":
            made_by, *rest = self._since_mark()
            made = _object(made_by, tuple(rest))
        elif opcode == "BINPERSID":
            made = PersistentId(pop())
        else:
            return False
        self._stack.append(made)
        return True

    def _change(self, opcode: str, argument: Any) -> None:
        """Handle opcodes that change or memoise the top value."""
        if opcode == "POP":
            self._stack.pop()
        elif opcode == "POP_MARK":
            self._since_mark()
        elif opcode == "MEMOIZE":
            self._memo[len(self._memo)] = self._stack[-1]
        elif opcode in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._stack[-1]
        elif opcode in ("APPEND", "APPENDS"):
            new = [self._stack.pop()] if opcode == "APPEND" else self._since_mark()
            self._container(list, "items").extend(new)
        elif opcode == "ADDITEMS":
            new = self._since_mark()
            if isinstance(self._stack[-1], set):
                self._stack[-1].update(map(_key, new))
        elif opcode in ("SETITEM", "SETITEMS"):
            new = [self._stack.pop(), self._stack.pop()][::-1] if opcode == "SETITEM" else self._since_mark()
            self._container(dict, "mapping").update(_pairs(new))
        elif opcode == "BUILD":
            state = self._stack.pop()
            if not isinstance(self._stack[-1], PickledObject):
                raise RefusedPickleError("is not a valid pickle: it sets the state of a plain value")
            self._stack[-1].state = state
        else:
            raise RefusedPickleError(f"has the pickle opcode {opcode}, which is not allowed")

    def _since_mark(self) -> list[Any]:
        taken, self._stack = self._stack, self._below.pop()
        return taken

    def _container(self, kind: type, part: str) -> Any:
        """The container at the top of the stack, or the one of the object there."""
        top = self._stack[-1]
        if isinstance(top, PickledObject):
            return getattr(top, part)
        if not isinstance(top, kind):
            raise RefusedPickleError(f"is not a valid pickle: it adds items to a {type(top).__name__}")
        return top


def _named(module: Any, name: Any) -> PickledName:
    """The name of a class or function, checked; it is never imported."""
    if not isinstance(module, str) or not isinstance(name, str):
        raise RefusedPickleError("is not a valid pickle: it refers to a class or function without a name")
    origin, root = f"{module}.{name}", module.partition(".")[0]
    if root == "numpy":
        known = NUMPY.fullmatch(origin) is not None or (module == root and name in np.sctypeDict)
    else:
        known = root not in sys.stdlib_module_names or origin in CONTAINERS
    if not known:
        raise RefusedPickleError(
            f"refers to {origin}, which is not allowed here; no code of the file was run"
        )
    return PickledName(origin)


def _object(made_by: Any, arguments: Any) -> PickledObject:
    if not isinstance(made_by, PickledName) or not isinstance(arguments, tuple):
        raise RefusedPickleError(
            "is not a pickle of Stable-Baselines3: it has an object without the name of a class"
        )
    return PickledObject(made_by.origin, arguments)


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    return [(_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True)]


def _key(key: Any) -> Any:
    """A dictionary key, if hashing it is fast and cannot collide on purpose."""
    if isinstance(key, str) or (isinstance(key, int) and abs(key) < 2**31):
        return key
    raise RefusedPickleError(f"has {shown(key)} as a key, expected a string")


def read_pickle(path: Path, largest: int = LARGEST_PICKLE) -> Any:
    """Read a pickle file, with records in place of objects; a ValueError says what is wrong."""
    if not path.is_file():
        raise ValueError(no_file(path))
    if path.stat().st_size > largest:
        raise ValueError(f"is too large, {path.stat().st_size} bytes (limit {largest})")
    return unpickled(path.read_bytes(), largest)


def unpickled(content: bytes, largest: int = LARGEST_PICKLE) -> Any:
    """The same for a pickle in memory."""
    return next_pickle(io.BytesIO(content), largest)


def next_pickle(content: io.BytesIO, largest: int = LARGEST_PICKLE) -> Any:
    """The same for the next of several pickles."""
    begin = content.tell()
    part = io.BytesIO(content.read(largest))
    cut_off = bool(content.read(1))
    try:
        found = InertUnpickler(part).load()
        content.seek(begin + part.tell())
        return found
    except RefusedPickleError:
        raise
    except ValueError as error:
        if cut_off and part.tell() >= largest:
            raise ValueError(f"is larger than {largest} bytes") from error
        raise ValueError(f"is not a pickle, or it is corrupted ({error})") from error
    except (EOFError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"is a corrupted pickle ({type(error).__name__})") from error


def array_of(value: Any, name: str = "a part") -> Array:
    """The array of NumPy's pickled record, or of a plain number."""
    match value:
        case bool() | float():
            return np.asarray(value)
        case int() if abs(value) < LARGEST_NUMBER:
            return np.asarray(value)
        case PickledObject(origin=origin, state=(_, shape, dtype, fortran, content)) if (
            "._reconstruct" in origin
        ):
            return _array(content, dtype, shape, "F" if fortran else "C")
        case PickledObject(origin=origin, arguments=(content, dtype, shape, order)) if (
            "._frombuffer" in origin
        ):
            return _array(content, dtype, shape, order)
        case PickledObject(origin=name, arguments=(dtype, content)) if ".scalar" in name:
            return _array(content, dtype, (), "C")
    raise ValueError(f"{name} must be an array of numbers, got {shown(value)}")


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> Array:
    match dtype:
        case PickledObject(origin="numpy.dtype", arguments=(str(code), *_), state=(_, str(byte_order), *_)):
            known = code in NUMBERS and byte_order in {"<", ">", "|", "="}
        case _:
            known = False
    whole = isinstance(shape, tuple) and all(isinstance(size, int) for size in shape)
    if not known or not whole or order not in ("C", "F") or not isinstance(content, bytes | bytearray):
        raise ValueError("has an array that is damaged, or contains other values than numbers")
    try:
        return np.frombuffer(content, np.dtype(byte_order + code)).reshape(shape, order=order).copy()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"has a corrupted array ({error})") from error


def shown(value: Any) -> str:
    """The type of a value, for error messages."""
    return value.origin if isinstance(value, PickledObject | PickledName) else f"a {type(value).__name__}"

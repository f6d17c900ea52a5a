"""The private object store of a run: every tree loopd knows, by content, where no agent can write."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from loopd.adapters.workspace.git import Git, fields, raw, text
from loopd.domain.scope import Kind
from loopd.ports.workspace import TreeId

LINK = "120000"
EXECUTABLE = "100755"

# The highest-ranking attributes: whatever .gitattributes says, bytes go in and come out as they are.
_ATTRIBUTES = "* -text -filter -ident !eol !working-tree-encoding !diff !merge -export-ignore -export-subst\n"
_EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


class Entry(Struct, frozen=True):
    """A file of a tree."""

    mode: str  # "100644" | "100755" | "120000"
    blob: str


class Difference(Struct, frozen=True):
    """A path that differs between two trees; None: not there."""

    path: str
    old: Entry | None
    new: Entry | None

    @property
    def kind(self) -> Kind:
        """Seen from the old tree."""
        if self.old is None:
            return Kind.ADDED
        return Kind.DELETED if self.new is None else Kind.CHANGED


class Store(Struct, frozen=True):
    """Trees and blobs. `scratch` is for index files of the moment, on the same disk."""

    git: Git
    object_format: str
    scratch: Path

    @property
    def empty_tree(self) -> TreeId:
        """The tree without files."""
        return _EMPTY_TREE[self.object_format]

    async def entries(self, tree: TreeId) -> dict[str, Entry]:
        """Every file of a tree by path."""
        return parsed_tree(await self.git("ls-tree", "-r", "-z", tree))

    async def differences(self, old: TreeId, new: TreeId) -> list[Difference]:
        """What leads from one tree to the other, sorted by path."""
        if old == new:
            return []
        parts = fields(await self.git("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return sorted((_difference(head, path) for head, path in pairs), key=lambda found: found.path)

    async def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """Contents by blob id, in one process."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        asked = "".join(f"{name}\n" for name in wanted).encode()
        return dict(_parsed_blobs(await self.git("cat-file", "--batch", stdin=asked), wanted))

    async def with_entries(self, tree: TreeId, entries: Mapping[str, Entry | None]) -> TreeId:
        """`tree` with these files put in place, or taken out. A file displaces a folder of its name, and
        back.
        """
        if not entries:
            return tree
        async with self.scratch_index() as git:
            await git("read-tree", tree)
            await git("update-index", "-z", "--replace", "--index-info", stdin=index_info(entries, self.zero))
            return (await git("write-tree")).decode().strip()

    @property
    def zero(self) -> str:
        """The id of nothing."""
        return "0" * len(self.empty_tree)

    @asynccontextmanager
    async def scratch_index(self) -> AsyncIterator[Git]:
        """git with an index file that is gone afterwards."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(dir=self.scratch, prefix="index-") as folder:
            yield self.git.at(index=Path(folder) / "index")


async def open_store(git: Git, folder: Path, object_format: str) -> Store:
    """The store in `folder`, made when it is not there. Idempotent, also after a crash half-way."""
    scratch = folder.parent / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    if not (folder / "loopd-store").exists():
        await git("init", "-q", "--bare", "--template=", f"--object-format={object_format}", folder)
        await git.at(git_dir=folder)("config", "gc.auto", "0")  # should a person use git there
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info" / "attributes").write_text(_ATTRIBUTES)
        (folder / "loopd-store").write_text(object_format)
    return Store(git.at(cwd=scratch, git_dir=folder), (folder / "loopd-store").read_text(), scratch)


def parsed_tree(listing: bytes) -> dict[str, Entry]:
    """The output of `ls-tree -r -z`."""
    found = {}
    for line in fields(listing):
        head, _, path = line.partition(b"\t")
        mode, _, blob = head.decode().split(" ")
        found[text(path)] = Entry(mode, blob)
    return found


def index_info(entries: Mapping[str, Entry | None], zero: str) -> bytes:
    """Input for `update-index -z --index-info`; removals first, so that a folder can become a file."""
    ordered = sorted(entries.items(), key=lambda item: item[1] is not None)
    lines = (raw(f"{entry.mode} {entry.blob}\t{path}" if entry else f"0 {zero}\t{path}") for path, entry in ordered)
    return b"".join(line + b"\0" for line in lines)


def _difference(head: bytes, path: bytes) -> Difference:
    old_mode, new_mode, old, new, _ = head.decode().lstrip(":").split(" ")
    return Difference(
        text(path),
        Entry(old_mode, old) if old_mode != "000000" else None,
        Entry(new_mode, new) if new_mode != "000000" else None,
    )


def _parsed_blobs(output: bytes, wanted: list[str]) -> Iterable[tuple[str, bytes]]:
    at = 0
    for name in wanted:
        end = output.index(b"\n", at)
        size = int(output[at:end].rsplit(b" ", 1)[1])
        yield name, output[end + 1 : end + 1 + size]
        at = end + size + 2

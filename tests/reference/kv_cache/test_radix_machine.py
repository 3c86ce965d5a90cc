"""The radix cache against a flat dictionary: any order of insert, match, lock, unlock, evict, and no page is lost."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from kv_cases import SHAPE
from serving_cases import assert_pages_have_one_owner

from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.paged import PagePool
from tritgold.kv_cache.radix import Node, RadixCache

PAGES = 14
LINES = ["aaaaaaaaa", "aaaabbbbb", "aaaabbcab", "bababa"]  # beginnings of these: most are cached, wholly or in part
ENDS = st.sampled_from([9, 8, 4, 6, 2, 5, 1, 0])
TEXTS = st.builds(lambda line, end: [ord(letter) for letter in line[:end]], st.sampled_from(LINES), ENDS)
Path = tuple[int, ...]


@dataclass
class Entry:
    page: int
    used: int
    locks: int = 0


class RadixMachine(RuleBasedStateMachine):
    """entries: the page that ends at each cached text of whole pages, which is what a trie without edges would hold."""

    locked = Bundle("locked")

    @initialize(page_size=st.integers(1, 3))
    def begin(self, page_size: int) -> None:
        self.radix = RadixCache(PagePool(F32(), SHAPE, PAGES, page_size))
        self.entries, self.clock = dict[Path, Entry](), 0

    def known(self, text: list[int]) -> list[Path]:
        """The cached beginnings of a text, shortest first."""
        size = self.radix.pool.page_size
        paths = [tuple(text[:end]) for end in range(size, len(text) + 1, size)]
        return [path for path in paths if path in self.entries]

    def touch(self, paths: list[Path]) -> None:
        self.clock += 1
        for path in paths:
            self.entries[path].used = self.clock

    @rule(text=TEXTS)
    def match(self, text: list[int]) -> None:
        self.touch(self.known(text))
        assert self.radix.match(text).pages == [self.entries[path].page for path in self.known(text)]

    @rule(text=TEXTS)
    def insert(self, text: list[int]) -> None:
        size = self.radix.pool.page_size
        count = len(text) // size
        if count > self.radix.pool.free_pages:
            return
        pages = self.radix.pool.allocate(count)
        kept = self.radix.insert(text, pages).pages
        for number, page in enumerate(pages):
            self.entries.setdefault(tuple(text[: (number + 1) * size]), Entry(page, 0))
        self.touch(self.known(text))
        assert kept == [self.entries[path].page for path in self.known(text)]
        assert len(kept) == count

    @rule(target=locked, text=TEXTS)
    def lock(self, text: list[int]) -> tuple[Node, list[Path]]:
        self.touch(self.known(text))
        node = self.radix.match(text).node
        self.radix.lock(node)
        for path in self.known(text):
            self.entries[path].locks += 1
        return node, self.known(text)

    @rule(held=consumes(locked))
    def unlock(self, held: tuple[Node, list[Path]]) -> None:
        node, paths = held
        self.radix.unlock(node)
        for path in paths:
            self.entries[path].locks -= 1

    @rule(pages=st.sampled_from([1, 2, 5, 0, -1, PAGES]))
    def evict(self, pages: int) -> None:
        possible = sum(not entry.locks for entry in self.entries.values())
        given = self.radix.evict(pages)
        assert min(pages, possible) <= given <= possible
        assert given or pages <= 0 or not possible
        there = {page for node in self.radix.nodes() for page in node.pages}
        gone = [path for path, entry in self.entries.items() if entry.page not in there]
        assert len(gone) == given
        evicted = [self.entries.pop(path) for path in gone]
        assert not any(entry.locks for entry in evicted), "never what somebody reads"
        leaves = [
            entry
            for path, entry in self.entries.items()
            if not entry.locks
            and not any(len(other) > len(path) and other[: len(path)] == path for other in self.entries)
        ]
        assert all(one.used <= other.used for one in evicted for other in leaves), "the oldest first"

    @invariant()
    def every_page_is_free_or_cached_once(self) -> None:
        if not hasattr(self, "radix"):
            return
        assert_pages_have_one_owner(self.radix.pool, self.radix, [])
        assert self.radix.cached_pages == len(self.entries)
        assert self.radix.evictable_pages == sum(not entry.locks for entry in self.entries.values())

    @invariant()
    def the_trie_is_one(self) -> None:
        if not hasattr(self, "radix"):
            return
        for node in self.radix.nodes():
            assert len(node.tokens) == len(node.pages) * self.radix.pool.page_size > 0
            assert node.parent is not None
            assert node.parent.children[node.tokens[: self.radix.pool.page_size]] is node
            assert all(child.locks <= node.locks and child.used <= node.used for child in node.children.values())


RadixMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None, derandomize=True)
test_any_order_of_operations = RadixMachine.TestCase

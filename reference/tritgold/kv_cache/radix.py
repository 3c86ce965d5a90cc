"""Prefix reuse: a compressed trie from tokens to the pages that hold their keys and values.

With causal attention the keys and values of a position depend on the tokens up to it and on nothing else. So a text
that begins with the same tokens may read the same pages, and gets the bits that it would have computed.

As in SGLang's RadixAttention (arXiv 2312.07104): an edge is a run of whole pages, split where two texts part; with
pages of one token that is where their tokens differ. Of a page that only begins alike nothing is reused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tritgold.errors import ContextError
from tritgold.kv_cache.paged import PagePool

Tokens = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """The end of an edge. tokens: of the edge, whole pages. pages: where their keys and values lie.

    used: when it was last matched or inserted, by a clock that counts these. locks: how many read it, itself or
    something after it. children: by the tokens of their first page.
    """

    tokens: Tokens
    pages: list[int]
    parent: "Node | None"
    used: int
    locks: int = 0
    children: dict[Tokens, "Node"] = field(default_factory=dict)


@dataclass(frozen=True)
class Prefix:
    """What is cached of a text: the pages from position 0 on, and the node at which they end."""

    pages: list[int]
    node: Node


class RadixCache:
    """Pages of a pool, found by the tokens that they hold. Each page in it is its own until it is evicted.

    >>> from tritgold.kv_cache.base import Sizes
    >>> from tritgold.kv_cache.float32 import F32
    >>> pool = PagePool(F32(), Sizes(layers=1, kv_heads=1, head_dim=2), pages=4, page_size=2)
    >>> radix = RadixCache(pool)
    >>> radix.insert([1, 2, 3, 4], pool.allocate(2)).pages
    [0, 1]
    >>> radix.match([1, 2, 3, 9]).pages
    [0]
    >>> radix.evict(1), pool.free_pages, radix.match([1, 2, 3, 4]).pages
    (1, 3, [0])
    """

    def __init__(self, pool: PagePool) -> None:
        """Raises ConfigError (``kv-shared``) for a scheme that keeps something outside of its pages."""
        pool.check_shareable()
        self.pool = pool
        self._root = Node((), [], None, 0)
        self._clock = 0

    @property
    def cached_pages(self) -> int:
        """Pages in it."""
        return sum(len(node.pages) for node in self.nodes())

    @property
    def evictable_pages(self) -> int:
        """Of these what is not locked."""
        return sum(len(node.pages) for node in self.nodes() if not node.locks)

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents first."""
        ahead = [self._root]
        while ahead:
            children = list(ahead.pop().children.values())
            yield from children
            ahead += children

    def match(self, tokens: Sequence[int]) -> Prefix:
        """The longest cached beginning of ``tokens``, in whole pages; a node is split where it ends inside one.

        What is found counts as used. It stays only if it is locked before the next eviction.
        """
        self._clock += 1
        node, pages, rest = self._root, list[int](), self._whole(tokens)
        while child := node.children.get(rest[: self.pool.page_size]):
            alike = self._pages_alike(child.tokens, rest)
            node = child if alike == len(child.pages) else self._split(child, alike)
            node.used = self._clock
            pages += node.pages
            rest = rest[len(node.tokens) :]
        return Prefix(pages, node)

    def insert(self, tokens: Sequence[int], pages: Sequence[int]) -> Prefix:
        """Take over the pages of ``tokens``: ``pages[i]`` holds those from i * page_size on; only whole pages count.

        Where the tokens are cached already, the cached page stays and the other one is given back to the pool. Returns
        what to read from now on, the caller's pages or the cached ones; it stays only if it is locked.

        Raises ContextError, with nothing taken over: ``radix-pages`` for another number of pages than there are whole
        pages of tokens, and for one that is cached already, for other tokens; ``page-address`` as ``check_out`` says.
        """
        whole = self._whole(tokens)
        if len(pages) * self.pool.page_size != len(whole):
            expected = f"{len(whole) // self.pool.page_size} for {len(tokens)} tokens"
            raise ContextError(
                "cannot hold the tokens", kind="radix-pages", got=f"{len(pages)} pages", expected=expected
            )
        self.pool.check_out(pages)
        found = self.match(whole)
        known = len(found.pages)
        spare = [ours for ours, kept in zip(pages[:known], found.pages, strict=True) if ours != kept]
        cached = {page for node in self.nodes() for page in node.pages}
        if both := cached.intersection([*spare, *pages[known:]]):
            raise ContextError("is cached for other tokens", kind="radix-pages", thing=f"page {min(both)}")
        self.pool.release(spare)
        if known == len(pages):
            return found
        new = Node(whole[known * self.pool.page_size :], list(pages[known:]), found.node, self._clock)
        found.node.children[self._key(new)] = new
        return Prefix([*found.pages, *new.pages], new)

    def lock(self, node: Node) -> None:
        """One more reads the text that ends at ``node``: no page of it is evicted.

        Raises ContextError (``radix-evicted``) where it is too late.
        """
        for step in self._path(node):
            step.locks += 1

    def unlock(self, node: Node) -> None:
        """One less. Raises ContextError where no sequence reads it (``radix-unlock``), and as ``lock`` does."""
        path = self._path(node)
        if any(not step.locks for step in path):
            raise ContextError("is not locked", kind="radix-unlock", thing=f"node of {len(node.tokens)} tokens")
        for step in path:
            step.locks -= 1

    def evict(self, pages: int) -> int:
        """Give at least so many pages back to the pool, or all that are not locked. Returns how many.

        Leaves first, of these the one used longest ago; a node goes as a whole.
        """
        given = 0
        while given < pages:
            leaves = [node for node in self.nodes() if not node.children and not node.locks]
            if not leaves:
                break
            oldest = min(leaves, key=lambda node: node.used)
            assert oldest.parent is not None
            del oldest.parent.children[self._key(oldest)]
            oldest.parent = None
            self.pool.release(oldest.pages[::-1])
            given += len(oldest.pages)
        return given

    def _split(self, node: Node, pages: int) -> Node:
        """The new node after the first ``pages`` pages. ``node`` keeps the rest: it still ends where it did."""
        assert node.parent is not None
        cut = pages * self.pool.page_size
        upper = Node(node.tokens[:cut], node.pages[:pages], node.parent, node.used, node.locks)
        node.parent.children[self._key(upper)] = upper
        node.tokens, node.pages, node.parent = node.tokens[cut:], node.pages[pages:], upper
        upper.children[self._key(node)] = node
        return upper

    def _path(self, node: Node) -> list[Node]:
        """The node and those above it, without the root. Raises ContextError (``radix-evicted``)."""
        path, above = list[Node](), node
        while above.parent is not None:
            path.append(above)
            above = above.parent
        if above is not self._root:
            raise ContextError("is evicted", kind="radix-evicted", thing=f"node of {len(node.tokens)} tokens")
        return path

    def _key(self, node: Node) -> Tokens:
        return node.tokens[: self.pool.page_size]

    def _whole(self, tokens: Sequence[int]) -> Tokens:
        return tuple(tokens[: len(tokens) // self.pool.page_size * self.pool.page_size])

    def _pages_alike(self, one: Tokens, other: Tokens) -> int:
        size, alike = self.pool.page_size, 0
        while alike * size < len(one) and one[alike * size :][:size] == other[alike * size :][:size]:
            alike += 1
        return alike

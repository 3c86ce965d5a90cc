"""Prefix reuse: a compressed trie from tokens to the pages that hold their keys and values.

With causal attention the keys and values of a position depend only on the tokens up to it. So a text that begins with
the same tokens can read the same pages, with the same bits that it would have computed.

As in SGLang's RadixAttention (arXiv 2312.07104): an edge is a run of whole pages, split at the first page that differs
between two texts; with pages of one token, at the first token that differs. A page that is equal only in part is not
reused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tritgold.errors import ContextError
from tritgold.kv_cache.paged import PagePool

Tokens = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """An edge of the trie and the node at its end. tokens: of the edge, whole pages. pages: hold their keys and values.

    used: time of its last match or insertion, in calls of ``match``. locks: number of readers of this node or of one
    below it. children: by the tokens of their first page.
    """

    tokens: Tokens
    pages: list[int]
    parent: "Node | None"
    used: int
    locks: int = 0
    children: dict[Tokens, "Node"] = field(default_factory=dict)


@dataclass(frozen=True)
class Prefix:
    """The cached beginning of a text: its pages from position 0 on, and the node at which they end."""

    pages: list[int]
    node: Node


class RadixCache:
    """Pages of a pool, found by their tokens. The cache owns its pages until it evicts them.

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
        """Raises ConfigError (``kv-shared``) for a scheme that stores something outside its pages."""
        pool.check_shareable()
        self.pool = pool
        self._root = Node((), [], None, 0)
        self._clock = 0

    @property
    def cached_pages(self) -> int:
        """The number of pages in the cache."""
        return sum(len(node.pages) for node in self.nodes())

    @property
    def evictable_pages(self) -> int:
        """The number of pages in the cache that are not locked."""
        return sum(len(node.pages) for node in self.nodes() if not node.locks)

    def nodes(self) -> Iterator[Node]:
        """Every node except the root, parents first."""
        ahead = [self._root]
        while ahead:
            children = list(ahead.pop().children.values())
            yield from children
            ahead += children

    def match(self, tokens: Sequence[int]) -> Prefix:
        """The longest cached beginning of ``tokens``, in whole pages; if it ends inside a node, the node is split.

        The found nodes count as used now. They stay cached only if they are locked before the next eviction.
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
        """Take ownership of the pages of ``tokens``: ``pages[i]`` holds those from i * page_size on. Whole pages only.

        If tokens are cached already, the cached page is kept and the caller's page is released to the pool. Returns
        what the caller must read from now on, its own pages or cached ones; they stay only if they are locked.

        Raises ContextError, and takes nothing: ``radix-pages`` if there are not as many pages as whole pages of tokens,
        or if a page is already cached for other tokens; ``page-address`` as ``check_out`` does.
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
        """Add a reader of the text that ends at ``node``: none of its pages is evicted until ``unlock``.

        Raises ContextError (``radix-evicted``) if the node is already evicted.
        """
        for step in self._path(node):
            step.locks += 1

    def unlock(self, node: Node) -> None:
        """Remove a reader. Raises ContextError (``radix-unlock``) if the node has none, and as ``lock`` does."""
        path = self._path(node)
        if any(not step.locks for step in path):
            raise ContextError("is not locked", kind="radix-unlock", thing=f"node of {len(node.tokens)} tokens")
        for step in path:
            step.locks -= 1

    def evict(self, pages: int) -> int:
        """Release at least ``pages`` pages to the pool, or all that are not locked. Returns how many were released.

        Only leaves are evicted, the least recently used first; all pages of a node together.
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
        """Split off the first ``pages`` pages of a node. Returns the new upper node; ``node`` keeps the rest."""
        assert node.parent is not None
        cut = pages * self.pool.page_size
        upper = Node(node.tokens[:cut], node.pages[:pages], node.parent, node.used, node.locks)
        node.parent.children[self._key(upper)] = upper
        node.tokens, node.pages, node.parent = node.tokens[cut:], node.pages[pages:], upper
        upper.children[self._key(node)] = node
        return upper

    def _path(self, node: Node) -> list[Node]:
        """The node and its ancestors without the root. Raises ContextError (``radix-evicted``)."""
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

"""The KV blocks of the exact engine: a queue of free blocks in the order they will be taken (vLLM's block pool)."""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import count


@dataclass
class Group:
    """Consecutive KV blocks with one hash. `blocks`: how many of them are in the cache."""

    users: int = 0
    blocks: int = 0


class BlockPool:
    """Free blocks: first the `blank` ones, then by age those whose content has a hash."""

    def __init__(self, blocks: int, group_blocks: int, runs: int) -> None:
        """`blocks` of KV; a hash stands for `group_blocks` of them. `runs`: of so many preempted requests the blocks
        that nobody shares are remembered.
        """
        self.blocks, self.group_blocks, self.spare_runs = blocks, group_blocks, runs
        self.blank = blocks
        self.groups: dict[int, Group] = {}
        # Hash of a group nobody uses, or a negative ticket for blocks nobody can hit; -> blocks.
        self._aged: OrderedDict[int, int] = OrderedDict()
        self._tickets = count(1)

    @property
    def free(self) -> int:
        """Blocks that can be taken."""
        return self.blank + sum(self._aged.values())

    @property
    def used(self) -> int:
        """Blocks that requests hold."""
        return self.blocks - self.free

    def take(self, need: int) -> None:
        """`need` free blocks; cached content in them is lost, oldest first."""
        assert need <= self.free  # noqa: S101
        from_blank = min(need, self.blank)
        self.blank -= from_blank
        need -= from_blank
        while need:
            key, held = self._aged.popitem(last=False)
            taken = min(need, held)
            need -= taken
            if key >= 0:
                self.groups[key].blocks -= taken
            if held > taken:
                self._aged[key] = held - taken
                self._aged.move_to_end(key, last=False)
            elif key >= 0:
                del self.groups[key]

    def cached_blocks(self, hashes: list[int], most: int) -> tuple[int, int]:
        """Leading blocks in the cache, `most` at most, and the free blocks that using them takes."""
        hit, idle = 0, 0
        for one in hashes:
            group = self.groups.get(one, Group())
            usable = min(group.blocks, most - hit)
            if usable <= 0:
                break
            hit += usable
            idle += 0 if group.users else usable
            if usable < self.group_blocks:
                break
        return hit, idle

    def hold(self, hashes: list[int], hit: int) -> None:
        """One more user of the groups with the first `hit` blocks. Of a free group only these are taken."""
        for number, one in enumerate(hashes[: -(-hit // self.group_blocks)]):
            group, used = self.groups[one], hit - number * self.group_blocks
            if not group.users and used < group.blocks:
                ticket, left = -next(self._tickets), group.blocks - used
                self._aged = OrderedDict((ticket, left) if k == one else (k, n) for k, n in self._aged.items())
                group.blocks = used
            self._aged.pop(one, None)
            group.users += 1

    def store(self, hashes: list[int], covered: int, full: int) -> int:
        """A request has `full` full blocks, `covered` of them in the cache: returns how many are now.

        What another request's blocks already stand for stays private.
        """
        while covered < full:
            number, inside = divmod(covered, self.group_blocks)
            group = self.groups.get(hashes[number], Group())
            if group.blocks != inside:
                break
            if inside == 0:
                self.groups[hashes[number]] = group
                group.users = 1
            more = min(full - covered, self.group_blocks - inside)
            group.blocks += more
            covered += more
        return covered

    def give_back(self, hashes: list[int], covered: int, blank: int, unshared: int) -> int:
        """What a request held: `blank` blocks not full, `unshared` full ones, and `covered` in groups; last first.

        Returns the run of the unshared ones, 0: none.
        """
        self.blank += blank
        run = 0
        if unshared:
            run = -next(self._tickets)
            self._aged[run] = unshared
        for one in reversed(hashes[: -(-covered // self.group_blocks)]):
            self.groups[one].users -= 1
            if not self.groups[one].users:
                self._aged[one] = self.groups[one].blocks
        return run

    def keep(self, run: int) -> int:
        """The run will be asked for: itself, or 0 where none can be remembered any more."""
        kept = run if self.spare_runs else 0
        self.spare_runs -= 1 if kept else 0
        return kept

    def left(self, run: int) -> int:
        """Blocks of a run that are still in the cache: its first ones."""
        return self._aged.get(run, 0) if run else 0

    def forget(self, run: int, used: int = 0) -> None:
        """`used` blocks of a run are its request's again, and nobody will ask for the rest."""
        if not run:
            return
        self.spare_runs += 1
        if used:
            self._aged[run] -= used
            if not self._aged[run]:
                del self._aged[run]

"""Lends sessions a credit from their users' accounts, which are logs of their own.

What may be lent follows from ``pager.paging.credit``; this module reads and appends. Every loan builds on the account
as it was read: where another process has lent something meanwhile, it is read again.
"""

import threading
from contextlib import suppress
from hashlib import sha256

from pager.errors import StoreConflict, StoreCorrupt
from pager.log.events import CreditLent, encode
from pager.log.store import Batch, Store
from pager.paging.credit import CreditLimits, UserAccount, account_of

TRIES = 30  # how often an account is read because another process was faster


class UserAccounts:
    """The accounts of all tenants, as far as they were read."""

    def __init__(self, store: Store, limits: CreditLimits) -> None:
        self._store = store
        self._limits = limits
        self._lock = threading.Lock()
        self._accounts: dict[str, UserAccount] = {}

    def lend(self, tenant: str, session: str, at: float) -> CreditLent:
        """Lend a credit to a session that begins or goes on after a rest; durable when this returns.

        It waits for the disk, so it belongs in a thread. Raises StoreError.
        """
        tries = 1
        with self._lock:
            while True:
                try:
                    return self._lent(tenant, session, at)
                except StoreConflict:
                    if tries >= TRIES:
                        raise
                    tries += 1

    def _lent(self, tenant: str, session: str, at: float) -> CreditLent:
        name = account_of(tenant)
        head = self._store.head(name)  # first: what comes in while we read makes the append a conflict
        account = self._accounts.pop(tenant, None) or UserAccount(self._limits)
        account.read(self._store.events(name, account.seq))
        for other, loan in account.loans.items():
            with suppress(StoreCorrupt):  # its credit counts as spent until it can be read
                account.read_session(other, self._store.events(other, loan.seq))
        lending = account.lend(session, at)
        head_now = sha256(head + b"".join(map(encode, lending.events))).digest()[:16]
        batch = Batch(name, at, lending.events, tenant=tenant, after=head, head=head_now)
        account.seq = self._store.append(batch).result()
        self._accounts[tenant] = account
        return lending.lent

// The bank's storage, in place of a database. It knows nothing of locks. Each write carries the
// fences of the leases that it was computed under. The vault keeps the newest fence of each account
// and refuses a write with an older one.
//
// In SQL: UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2 -- and check
// the row count.

export class StaleFenceError extends Error {
  constructor(id, fence, newest) {
    super(`fence ${fence} of ${id} is older than ${newest}: another client has had the lock since`)
    this.name = 'StaleFenceError'
  }
}

export class Vault {
  /** The balance and the newest fence of each account. */
  #accounts

  /** @param {Record<string, number>} balances the balance of each account */
  constructor(balances) {
    this.#accounts = new Map(Object.entries(balances).map(([id, balance]) => [id, { balance, fence: 0 }]))
  }

  read = (ids) => Object.fromEntries(ids.map((id) => [id, this.#accounts.get(id).balance]))

  /**
   * Sets the balances, all or none.
   *
   * @param {Record<string, number>} balances
   * @param {Record<string, number> | undefined} fences the fences of the leases, by account;
   * without them, every write is accepted
   */
  write(balances, fences) {
    for (const [id, fence] of Object.entries(fences ?? {})) {
      const newest = this.#accounts.get(id).fence
      if (fence < newest) throw new StaleFenceError(id, fence, newest)
    }
    for (const [id, balance] of Object.entries(balances)) {
      const account = this.#accounts.get(id)
      account.balance = balance
      if (fences) account.fence = fences[id]
    }
  }

  get total() {
    return [...this.#accounts.values()].reduce((sum, { balance }) => sum + balance, 0)
  }

  toString() {
    return [...this.#accounts].map(([id, { balance }]) => `${id} ${balance}`).join(' · ')
  }
}

// Locks that several may hold at a time, and the lock that goes with one of them: all by the same mechanism, which is
// the number of those who may.

import type * as api from '../index'
import type { Acquirer } from './acquirer'
import { checkNumber } from './arguments'
import type { Lease } from './lease'
import { Most } from './native'
import type { Work } from './section'

const MAX_PERMITS = 1_000_000

type Options = api.AcquireOptions | undefined

export class Lock implements api.Lock {
  readonly key: string
  readonly #acquirer: Acquirer

  constructor(acquirer: Acquirer, key: string) {
    acquirer.checkKey(key)
    this.key = key
    this.#acquirer = acquirer
  }

  acquire(options?: api.AcquireOptions): Promise<Lease> {
    return this.#acquirer.acquire(this.key, options)
  }

  tryAcquire(options?: api.TryAcquireOptions): Promise<Lease | null> {
    return this.#acquirer.tryAcquire(this.key, options)
  }

  withLock<T>(fn: Work<api.Lease, T>): Promise<T>
  withLock<T>(options: Options, fn: Work<api.Lease, T>): Promise<T>
  withLock(fn: api.LockCallback): void
  withLock(options: Options, fn: api.LockCallback): void
  withLock(first: unknown, second?: unknown): unknown {
    return this.#acquirer.withLock(this.key, first, second)
  }
}

export class Semaphore extends Lock implements api.Semaphore {
  readonly permits: number

  constructor(acquirer: Acquirer, key: string, permits: number) {
    checkNumber('permits', permits, 1, MAX_PERMITS, true)
    super(acquirer.shared(permits), key)
    this.permits = permits
  }
}

export class ReadWriteLock implements api.ReadWriteLock {
  readonly key: string
  readonly read: Lock
  readonly write: Lock

  constructor(acquirer: Acquirer, key: string) {
    this.read = new Lock(acquirer.shared(Most.Readers), key)
    this.write = new Lock(acquirer, key)
    this.key = key
  }
}

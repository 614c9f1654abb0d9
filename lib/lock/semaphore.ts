// Semaphores and read/write locks. Both are locks with another limit on the number of holders.

import type * as api from '../../index'
import { Most } from '../native/protocol'
import { checkNumber } from '../util/arguments'
import type { Acquirer } from './acquirer'
import type { Lease } from './lease'
import { checkNoOnceKey } from './once-key'
import type { SectionFunction } from './with-lock'

const MAX_PERMITS = 1_000_000

type Options = api.AcquireOptions | undefined

export class Lock implements api.Lock {
  readonly key: string
  readonly #acquirer: Acquirer

  constructor(acquirer: Acquirer, key: string) {
    acquirer.checkKey(key)
    checkNoOnceKey(key)
    this.key = key
    this.#acquirer = acquirer
  }

  acquire(options?: api.AcquireOptions): Promise<Lease> {
    return this.#acquirer.acquire(this.key, options)
  }

  tryAcquire(options?: api.TryAcquireOptions): Promise<Lease | null> {
    return this.#acquirer.tryAcquire(this.key, options)
  }

  withLock<T>(fn: SectionFunction<api.Lease, T>): Promise<T>
  withLock<T>(options: Options, fn: SectionFunction<api.Lease, T>): Promise<T>
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
    super(acquirer.withMost(permits), key)
    this.permits = permits
  }
}

export class ReadWriteLock implements api.ReadWriteLock {
  readonly key: string
  readonly read: Lock
  readonly write: Lock

  constructor(acquirer: Acquirer, key: string) {
    this.read = new Lock(acquirer.withMost(Most.Readers), key)
    this.write = new Lock(acquirer, key)
    this.key = key
  }
}

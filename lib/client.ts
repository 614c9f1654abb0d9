import { EventEmitter } from 'node:events'
import type * as api from '../index'
import { badValue, checkFunction, checkKey } from './arguments'
import { call } from './call'
import { defineDispose } from './dispose'
import * as errors from './errors'
import { closeOnSignals, forgetSignals, releaseOnExit } from './exit'
import { Lease, type Observer, type Owner } from './lease'
import { bridge, type ClientConfig, open } from './native'
import { type Asked, parseAcquire, parseClient, parseTry } from './options'
import { guarded } from './rethrow'

type Work<T> = (lease: api.Lease) => T | PromiseLike<T>

export class LockClient extends EventEmitter<api.LockClientEvents> implements api.LockClient {
  readonly #owner: Owner
  readonly #defaults: Asked
  readonly #tryDefaults: Asked
  #closing: Promise<void> | undefined
  #lastStats: api.LockStats | undefined
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  static {
    defineDispose(LockClient.prototype, (client) => client.close())
  }

  constructor(options?: string | api.LockClientOptions) {
    const { config, asked, releaseOnSignal } = parseClient(options)
    super()
    if (open()) releaseOnExit()
    this.#owner = ownerOf(this, openClient(config))
    this.#defaults = asked
    this.#tryDefaults = { ...asked, wait: -1 }
    closeOnSignals(this, releaseOnSignal)
  }

  /** The default ttl of `client`. */
  static ttlOf(client: LockClient): number {
    return client.#defaults.ttl
  }

  /** What acquire() and tryAcquire() do, with the lease observed: for the worker. */
  static request(client: LockClient, key: string, asked: Asked, observer: Observer): Promise<Lease | null> {
    client.#checkOpen(key)
    return Lease.request(client.#owner, key, asked, observer)
  }

  acquire(key: string, options?: api.AcquireOptions): Promise<Lease> {
    try {
      checkKey(key)
      const asked = options === undefined ? this.#defaults : parseAcquire(options, this.#defaults)
      this.#checkOpen(key)
      // Only a request that does not wait resolves with null.
      return Lease.request(this.#owner, key, asked) as Promise<Lease>
    } catch (error) {
      return Promise.reject(error)
    }
  }

  tryAcquire(key: string, options?: api.TryAcquireOptions): Promise<Lease | null> {
    try {
      checkKey(key)
      const asked = options === undefined ? this.#tryDefaults : parseTry(options, this.#defaults)
      this.#checkOpen(key)
      return Lease.request(this.#owner, key, asked)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  withLock<T>(key: string, work: Work<T>): Promise<T>
  withLock<T>(key: string, options: api.AcquireOptions | undefined, work: Work<T>): Promise<T>
  async withLock<T>(key: string, second: api.AcquireOptions | undefined | Work<T>, third?: Work<T>): Promise<T> {
    const [options, work] = typeof second === 'function' && third === undefined ? [undefined, second] : [second, third]
    checkKey(key)
    checkFunction('fn', work)
    const lease = await this.acquire(key, options as api.AcquireOptions | undefined)
    let result: T
    // This promise is pending, whatever fn waits for.
    bridge.hold()
    try {
      result = await (work as Work<T>)(lease)
    } catch (error) {
      await this.#releaseQuietly(lease)
      throw error
    } finally {
      bridge.unhold()
    }
    // false: it had been lost when it was to be released, and assertHeld() says why.
    if ((await this.#releaseQuietly(lease)) === false) lease.assertHeld()
    return result
  }

  async #releaseQuietly(lease: Lease): Promise<boolean | undefined> {
    try {
      return await lease.release()
    } catch (error) {
      this.#owner.failed(error)
      return undefined
    }
  }

  async inspect(key: string): Promise<api.LockInfo | null> {
    checkKey(key)
    this.#checkOpen(key)
    const text = await call(bridge.inspect(this.#owner.id, key), key)
    return text === null ? null : JSON.parse(text)
  }

  stats(): api.LockStats {
    return this.#lastStats ?? JSON.parse(bridge.stats(this.#owner.id))
  }

  async ready(): Promise<void> {
    this.#checkOpen()
    await call(bridge.ping(this.#owner.id))
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    // Native code forgets the client now.
    this.#lastStats = { ...this.stats(), held: 0, waiting: 0 }
    try {
      await call(bridge.closeClient(this.#owner.id))
    } catch (error) {
      this.#owner.failed(error)
    }
    forgetSignals(this)
  }

  #checkOpen(key?: string): void {
    if (this.#closing !== undefined) throw errors.closed(key)
  }
}

function openClient(config: ClientConfig): number {
  try {
    return bridge.openClient(config)
  } catch (error) {
    // Its message is made for people, and has no password in it.
    throw badValue((error as Error).message)
  }
}

/** What leases see of their client; an object of its own, so that users do not see it. */
function ownerOf(client: EventEmitter<api.LockClientEvents>, id: number): Owner {
  return {
    id,
    hearsLosses: () => client.listenerCount('lost') > 0,
    lost: (lease, error) => client.emit('lost', lease, error),
    failed: (error) => {
      // Without a listener it would be thrown.
      if (client.listenerCount('error') > 0) guarded(() => client.emit('error', error as api.LockError))
    },
  }
}

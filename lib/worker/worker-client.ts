// The client of a worker: the one that was given, or one of its own.

import type * as api from '../../index'
import { LockClient } from '../client/client'
import { foreignClient, otherCopy } from '../client/store/foreign-client'
import { checkNoOnceKey } from '../lock/once-key'
import { warnOfSuspiciousKey } from '../lock/suspicious-key'
import { badType, badValue } from '../util/arguments'
import type { WorkerSettings } from './worker-options'

type Settings = Pick<WorkerSettings, 'client' | 'store' | 'prefix' | 'ttl' | 'key'>

interface Callbacks {
  /** Called when the client begins to close. */
  closed(): void
  /** Called for errors of the worker's own client. */
  failed(error: unknown): void
}

export class WorkerClient {
  readonly #settings: Settings
  /** The name of the worker's own client at the store. */
  readonly #name: string
  readonly #callbacks: Callbacks
  readonly #isOwn: boolean
  /** `undefined` after the worker's own client was closed, until the worker needs one again. */
  #client: LockClient | undefined
  #closing: Promise<void> = Promise.resolve()

  /** Throws if `settings.client` is no lock client, or if the client refuses the worker's key. */
  constructor(settings: Settings, name: string, callbacks: Callbacks) {
    this.#settings = settings
    this.#name = name
    this.#callbacks = callbacks
    this.#isOwn = settings.client === undefined
    if ((settings.store as unknown) instanceof LockClient) {
      throw badValue('The "store" option takes URLs; what createLockClient() made is given as "client"')
    }
    if (settings.client === undefined) this.#client = this.#open()
    else if (settings.client instanceof LockClient) this.#client = settings.client
    else throw noClient(settings.client)
    try {
      LockClient.contextOf(this.#client).checkNames(settings.key)
      checkNoOnceKey(settings.key)
      warnOfSuspiciousKey(settings.key)
    } catch (error) {
      this.close()
      throw error
    }
  }

  /** Returns the client. Opens the worker's own client if it was closed. */
  get open(): LockClient {
    this.#client ??= this.#open()
    return this.#client
  }

  /** Returns the client; `undefined` if the worker's own client was closed. */
  get current(): LockClient | undefined {
    return this.#client
  }

  /** Resolves when the last close of the worker's own client has ended; at once without a close. */
  get over(): Promise<void> {
    return this.#closing
  }

  /**
   * Makes the client call `closed` when it begins to close, until {@link ignoreClose} is called.
   */
  watchClose(): void {
    LockClient.contextOf(this.open).pauses.add(this.#closed)
  }

  ignoreClose(): void {
    if (this.#client !== undefined) LockClient.contextOf(this.#client).pauses.delete(this.#closed)
  }

  /**
   * Closes the worker's own client. Work that still runs can release its lease through the store.
   */
  close(options?: api.CloseOptions): void {
    if (!this.#isOwn || this.#client === undefined) return
    this.#closing = this.#client.close(options)
    this.#client = undefined
  }

  readonly #closed = (): void => this.#callbacks.closed()

  #open(): LockClient {
    const { store, prefix, ttl } = this.#settings
    const client = new LockClient({ store, prefix, ttl, name: this.#name })
    client.on('error', (error) => this.#callbacks.failed(error))
    return client
  }
}

function noClient(given: unknown): TypeError {
  const client = foreignClient(given)
  const received = client ? `${client.what}: give its URL instead, { store: '${client.url}' }` : otherCopy(given)
  return badType('client', 'a LockClient made by createLockClient()', given, received)
}

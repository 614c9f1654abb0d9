// Many waiters for one lock, in several processes. With the store in memory, which is one process,
// they are in several clients.

import assert from 'node:assert/strict'
import { createLockClient } from 'leasehold'
import { startChild } from './child.mjs'
import { now, until } from './clock.mjs'
import { atEnd } from './endings.mjs'

/** Does the same as process/fixtures/waiters.mjs, in this process. */
class LocalParty {
  events = []
  #locks

  constructor(t, store, options) {
    this.#locks = createLockClient({ store, ...options })
    atEnd(t, () => this.#locks.close())
  }

  async join(ids, key, { wait = Infinity }) {
    for (const id of ids) {
      this.#locks
        .acquire(key, { wait })
        .then(async (lease) => {
          this.events.push({ event: 'served', id, key, fence: lease.fence, at: now() })
          await lease.release()
        })
        .catch((error) => this.events.push({ event: 'failed', id, key, error }))
    }
  }
}

class RemoteParty {
  constructor(child) {
    this.child = child
  }

  get events() {
    return this.child.events
  }

  join(ids, key, how) {
    return this.child.ask('join', { ids, key, ...how })
  }
}

/** Starts `count` parties that share `store`. `options` are those of their clients. */
export async function startParties(t, name, store, count, options = {}) {
  if (name === 'memory') return Array.from({ length: count }, () => new LocalParty(t, store, options))
  const { ttl, ...client } = options
  const children = Array.from({ length: count }, () => startChild(t, 'waiters.mjs', { store, ttl, client }))
  await Promise.all(children.map((child) => child.next('ready')))
  return children.map((child) => new RemoteParty(child))
}

/** Resolves when `count` waiters are in the queue of `key` at the store. */
export const queued = (locks, key, count) =>
  until(`${count} in the queue`, async () => (await locks.inspect(key))?.waiters.length === count)

/**
 * Lets `count` waiters of the parties join the queue in turn, each after the one before it is in
 * the queue.
 */
export async function lineUp(locks, parties, key, count, how = {}) {
  for (let id = 0; id < count; id++) {
    await parties[id % parties.length].join([id], key, how)
    await queued(locks, key, id + 1)
  }
}

/** Returns all events of `key` that the parties have reported. */
export const told = (parties, key) => parties.flatMap(({ events }) => events.filter((event) => event.key === key))

/**
 * Resolves to the events of `key` when `count` waiters were served or have failed, and the last one
 * has released the lock.
 */
export async function settled(locks, parties, key, count, timeout = 60_000) {
  await until(`${count} to be served`, () => told(parties, key).length >= count, timeout)
  await until('the last release', async () => (await locks.inspect(key)) === null)
  return told(parties, key)
}

/**
 * Returns what is wrong with `events` if `ids` were to be served in their order: undefined, or a
 * sentence.
 */
export function disorder(events, ids) {
  const others = events.filter(({ event }) => event !== 'served')
  if (others.length) return `not all waiters were served: ${JSON.stringify(others)}`
  if (events.length !== ids.length) return `${events.length} of ${ids.length} were served`
  for (const by of ['fence', 'at']) {
    const order = events.toSorted((a, b) => a[by] - b[by]).map(({ id }) => id)
    const wrong = order.findIndex((id, i) => id !== ids[i])
    if (wrong >= 0) return `by ${by}, ${order[wrong]} came as number ${wrong}: ${order.join(' ')}`
  }
  if (new Set(events.map(({ fence }) => fence)).size !== events.length) return 'a fence was given twice'
  return undefined
}

/** Returns 0, 1, 2 … */
export const upTo = (count) => Array.from({ length: count }, (_, i) => i)

export const assertInOrder = (events, ids) => assert.equal(disorder(events, ids), undefined)

/**
 * Returns how many waiters were served after a later one. Fails unless 0 to `count` - 1 were all
 * served, each once.
 */
export function passed(events, count) {
  const others = events.filter(({ event }) => event !== 'served')
  assert.deepEqual(others, [])
  const ids = events.toSorted((a, b) => a.fence - b.fence).map(({ id }) => id)
  assert.deepEqual(
    ids.toSorted((a, b) => a - b),
    upTo(count),
  )
  return ids.filter((id, place) => ids.slice(0, place).some((before) => before > id)).length
}

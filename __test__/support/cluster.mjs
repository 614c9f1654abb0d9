// A Redis Cluster of three masters, each with a replica or alone.

import { now, sleep, until } from './clock.mjs'
import { freePort } from './ports.mjs'
import { startRedis } from './servers.mjs'

const SLOTS = 16_384
const MASTERS = 3

const range = (from, to) => Array.from({ length: to - from }, (_, i) => from + i)

/**
 * Returns what a node reports of all nodes: [{ id, port, flags, master, linked, slots: [[first,
 * last]] }].
 */
async function nodesSeenBy(node) {
  const lines = (await node.ask('CLUSTER', 'NODES')).trim().split('\n')
  return lines.map((line) => {
    const [id, address, flags, master, , , , link, ...slots] = line.split(' ')
    return {
      id,
      port: Number(/:(\d+)/.exec(address)?.[1]),
      flags: flags.split(','),
      master,
      linked: link === 'connected',
      // Slots in brackets are being moved.
      slots: slots.filter((text) => !text.startsWith('[')).map((text) => text.split('-').map(Number)),
    }
  })
}

const isIn = (slot, [first, last = first]) => first <= slot && slot <= last

class Cluster {
  constructor(nodes) {
    this.nodes = nodes
  }

  url() {
    return `${this.nodes[0].tls ? 'rediss' : 'redis'}-cluster://${this.nodes.map(({ port }) => `127.0.0.1:${port}`).join()}`
  }

  #running() {
    return this.nodes.filter(({ isRunning }) => isRunning)
  }

  /** Returns the nodes as the first running one sees them, each with its `server`. */
  async #seen() {
    for (const node of this.#running()) {
      const seen = await nodesSeenBy(node).catch(() => undefined)
      if (seen) return seen.map((each) => ({ ...each, server: this.nodes.find(({ port }) => port === each.port) }))
    }
    throw new Error('no node of the cluster answers')
  }

  /** Returns the masters that have slots and run: { id, server, slots } of each. */
  async masters() {
    const seen = await this.#seen()
    return seen.filter(({ flags, slots }) => flags.includes('master') && !flags.includes('fail') && slots.length)
  }

  /** Returns the master of `slot`. */
  async masterOf(slot) {
    const found = (await this.masters()).find(({ slots }) => slots.some((each) => isIn(slot, each)))
    if (!found) throw new Error(`no node has slot ${slot}`)
    return found
  }

  /** Returns the slot of a key at the store. */
  slotOf(key) {
    return this.#running()[0].ask('CLUSTER', 'KEYSLOT', key)
  }

  /** Resolves when every running node reports that the cluster works. */
  settled() {
    const works = async () => {
      const states = await Promise.all(this.#running().map((node) => node.ask('CLUSTER', 'INFO').catch(() => '')))
      return states.every((state) => state.includes('cluster_state:ok'))
    }
    // On a busy machine, nodes may consider each other failed, and need a while to recover.
    return until('the cluster to work', works, 60_000)
  }

  async #failedOver(slot, old, start) {
    await until('another master', async () => (await this.masterOf(slot).catch(() => old)).id !== old.id)
    await this.settled()
    return { ms: now() - start, old: old.server, master: (await this.masterOf(slot)).server }
  }

  /**
   * Runs a planned failover of the master of `slot` to its replica. Returns { ms, old, master }.
   */
  async failOver(slot) {
    const old = await this.masterOf(slot)
    const replica = (await this.#seen()).find(({ master, flags }) => master === old.id && !flags.includes('fail'))
    if (!replica) throw new Error(`the master of slot ${slot} has no replica`)
    const start = now()
    await replica.server.ask('CLUSTER', 'FAILOVER')
    return this.#failedOver(slot, old, start)
  }

  /**
   * Kills the master of `slot`, and waits until its replica has taken over. Returns { ms, old,
   * master }.
   */
  async loseMaster(slot) {
    const old = await this.masterOf(slot)
    const start = now()
    await old.server.kill()
    return this.#failedOver(slot, old, start)
  }

  /**
   * Freezes the master of `slot`, and waits until its replica has taken over. Returns { ms, old,
   * master }. Thaw `old` later.
   */
  async freezeMaster(slot) {
    const old = await this.masterOf(slot)
    const start = now()
    old.server.freeze()
    return this.#failedOver(slot, old, start)
  }

  /**
   * Moves one slot with all its keys to another master while the cluster is in use: `atOnce` keys
   * at a time, with a pause of `pause` ms after each time.
   */
  async moveSlot(slot, to, { atOnce = 100, pause = 0 } = {}) {
    const from = await this.masterOf(slot)
    if (from.id === to.id) return
    const [source, target] = await Promise.all([from.server.command(), to.server.command()])
    try {
      await target('CLUSTER', 'SETSLOT', slot, 'IMPORTING', from.id)
      await source('CLUSTER', 'SETSLOT', slot, 'MIGRATING', to.id)
      for (;;) {
        const keys = await source('CLUSTER', 'GETKEYSINSLOT', slot, atOnce)
        if (!keys.length) break
        await source('MIGRATE', '127.0.0.1', to.server.port, '', 0, 5_000, 'KEYS', ...keys)
        if (pause) await sleep(pause)
      }
      // Tell the new owner first, so that the slot always has one. Tell the others, too, so that
      // later requests see it.
      await target('CLUSTER', 'SETSLOT', slot, 'NODE', to.id)
      await source('CLUSTER', 'SETSLOT', slot, 'NODE', to.id)
      const others = (await this.masters()).filter(({ id }) => id !== from.id && id !== to.id)
      await Promise.all(others.map(({ server }) => server.ask('CLUSTER', 'SETSLOT', slot, 'NODE', to.id)))
    } finally {
      source.close()
      target.close()
    }
  }

  /**
   * Moves each slot of the list to the next master, one after the other. Returns how many ms that
   * took.
   */
  async reshard(slots) {
    const start = now()
    for (const slot of slots) {
      const masters = await this.masters()
      const owner = masters.findIndex(({ slots: owned }) => owned.some((each) => isIn(slot, each)))
      await this.moveSlot(slot, masters[(owner + 1) % masters.length])
    }
    return now() - start
  }
}

/**
 * Starts three masters, the first of the nodes, and a replica for each of them unless `replicas` is
 * false. A node counts as failed after `nodeTimeout` ms. Settings: keep, args, tls.
 */
export async function startCluster(t, { replicas = true, nodeTimeout = 1_000, args = [], ...settings } = {}) {
  const own = ['--cluster-enabled', 'yes', '--cluster-node-timeout', nodeTimeout]
  // A replica stays with its master, and may take over however old its copy is.
  own.push('--cluster-allow-replica-migration', 'no', '--cluster-replica-validity-factor', 0)
  // Without this setting, the nodes tell clients that connect over TLS the ports without TLS.
  if (settings.tls) own.push('--tls-cluster', 'yes')
  const nodes = []
  for (let i = 0; i < (replicas ? 2 * MASTERS : MASTERS); i++) {
    nodes.push(await startRedis(t, { ...settings, port: await freePort({ bus: true }), args: [...own, ...args] }))
  }
  const cluster = new Cluster(nodes)
  const masters = nodes.slice(0, MASTERS)
  const share = (i) => Math.floor((SLOTS * i) / MASTERS)
  for (const [i, master] of masters.entries()) {
    await master.ask('CLUSTER', 'SET-CONFIG-EPOCH', i + 1)
    await master.ask('CLUSTER', 'ADDSLOTS', ...range(share(i), share(i + 1)))
  }
  for (const node of nodes.slice(1)) await node.ask('CLUSTER', 'MEET', '127.0.0.1', nodes[0].port)
  const allKnow = async (check) => (await Promise.all(nodes.map(nodesSeenBy))).every(check)
  await until('the nodes to know each other', () =>
    allKnow((seen) => seen.filter((n) => n.linked).length === nodes.length),
  )
  for (const [i, replica] of nodes.slice(MASTERS).entries()) {
    await replica.ask('CLUSTER', 'REPLICATE', await masters[i].ask('CLUSTER', 'MYID'))
  }
  await until('all nodes to know the replicas', () =>
    allKnow((seen) => seen.filter(({ flags }) => flags.includes('slave')).length === nodes.length - MASTERS),
  )
  await until('the replicas to have their copies', async () => {
    const roles = await Promise.all(nodes.slice(MASTERS).map((node) => node.ask('ROLE')))
    return roles.every(([, , , link]) => link === 'connected')
  })
  await cluster.settled()
  return cluster
}

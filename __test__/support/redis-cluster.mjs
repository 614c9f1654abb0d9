// A Redis Cluster for tests.

import { now, sleep } from './clock.mjs'
import { startRedis } from './servers.mjs'

const SLOTS = 16_384

/** Starts a node. The bus needs a port 10 000 above the node's, and not every free port has one. */
async function startNode(t) {
  const args = ['--cluster-enabled', 'yes', '--cluster-node-timeout', 1_000]
  for (let attempt = 1; ; attempt++) {
    try {
      const server = await startRedis(t, { args })
      return { server, ask: await server.command() }
    } catch (error) {
      if (attempt === 10) throw error
    }
  }
}

const until = async (isSo, what) => {
  for (const end = now() + 40_000; !(await isSo()); await sleep(20))
    if (now() > end) throw new Error(`in vain: ${what}`)
}

/**
 * Starts a cluster of that many masters, each with a replica if wanted, which ends with the test. Returns its nodes, the
 * masters first, then the replicas in the same order; each can be asked by `ask(...words)`.
 */
export async function startCluster(t, { masters = 3, replicas = false } = {}) {
  const nodes = []
  while (nodes.length < (replicas ? 2 * masters : masters)) nodes.push(await startNode(t))
  for (const [index, { server, ask }] of nodes.entries()) {
    await ask('CLUSTER', 'SET-CONFIG-EPOCH', index + 1)
    const slots = Array.from({ length: SLOTS }, (_, slot) => slot)
    const own = slots.filter((slot) => Math.floor((slot * masters) / SLOTS) === index)
    if (own.length) await ask('CLUSTER', 'ADDSLOTS', ...own)
    if (index) await nodes[0].ask('CLUSTER', 'MEET', '127.0.0.1', server.port)
  }
  for (const { ask } of nodes) {
    const info = () => ask('CLUSTER', 'INFO')
    await until(async () => (await info()).includes(`cluster_known_nodes:${nodes.length}\r`), 'the nodes meet')
    await until(async () => !/handshake|disconnected/.test(await ask('CLUSTER', 'NODES')), 'they know each other')
  }
  for (const [index, { ask }] of nodes.entries()) {
    if (index >= masters) await ask('CLUSTER', 'REPLICATE', await nodes[index - masters].ask('CLUSTER', 'MYID'))
  }
  for (const { ask } of nodes) {
    await until(async () => (await ask('CLUSTER', 'INFO')).includes('cluster_state:ok'), 'the cluster is up')
    await until(async () => /role:master|link_status:up/.test(await ask('INFO', 'replication')), 'replicas follow')
  }
  return nodes
}

/** The store URL of the cluster of `nodes`. */
export const urlOf = (nodes) => `redis-cluster://${nodes.map(({ server }) => `127.0.0.1:${server.port}`).join(',')}`

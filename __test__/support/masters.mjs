// Redis servers that know nothing of each other, each behind a network of its own that can be broken.

import { startRelay } from './relay.mjs'
import { startRedis } from './servers.mjs'

/**
 * Starts `count` servers, each behind a relay: [{ name, server, relay, url }]. With `keep`, each write is on its disk
 * before it is answered. Other settings: as of startRedis().
 */
export async function startMasters(t, count, settings = {}) {
  const nodes = []
  for (let i = 0; i < count; i++) {
    const server = await startRedis(t, settings)
    const relay = await startRelay(t, server.port)
    nodes.push({ name: `node ${i}`, server, relay, url: `redis://127.0.0.1:${relay.port}` })
  }
  return nodes
}

// Redis servers that are independent of each other, each behind a network that a test can break.

import { startRelay } from './relay.mjs'
import { startRedis } from './servers.mjs'

/**
 * Starts `count` servers, each behind a relay: [{ name, server, relay, url }]. With `keep`, each
 * write is on disk before its reply. The other settings are those of startRedis().
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

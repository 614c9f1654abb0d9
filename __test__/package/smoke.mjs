// Tests an addon quickly: on each kind of store, it acquires, renews, loses and releases a lock,
// and the process ends. Use it for addons without a run of the whole suite: cross-built, emulated
// or released ones.
//
//   NAPI_RS_NATIVE_LIBRARY_PATH=/path/to/leasehold.….node node __test__/package/smoke.mjs
//
// Uses the Redis of REDIS_SERVER or of the PATH. Without one, only the other stores are tested.
// With --redis, a missing Redis is an error.

import { join } from 'node:path'
import * as leasehold from 'leasehold'
import { findRedis } from '../support/redis-server.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { exercise } from './install/exercise.cjs'

process.env.REDIS_SERVER = findRedis() ?? ''
if (process.argv.includes('--redis') && !process.env.REDIS_SERVER) throw new Error('there is no redis-server')

const endings = []
const t = { after: (ending) => endings.push(ending) }
try {
  await exercise(leasehold, 'memory:smoke')
  await exercise(leasehold, `sqlite:${join(temporaryFolder(t), 'locks.db')}`)
  if (process.env.REDIS_SERVER) await exercise(leasehold, (await startRedis(t)).url())
} finally {
  for (const ending of endings.reverse()) await ending()
}
const stores = process.env.REDIS_SERVER ? 'memory, sqlite, redis' : 'memory, sqlite (there is no redis-server)'
console.log(`exercised on ${process.platform} ${process.arch}, Node ${process.versions.node}: ${stores}`)

// Tries an addon quickly, wherever it may run: on each kind of store it acquires, renews, loses and releases, and the process
// ends. For addons that the whole suite is not run with: those cross-built, emulated, or of a release.
//
//   NAPI_RS_NATIVE_LIBRARY_PATH=/path/to/leasehold.….node node __test__/package/smoke.mjs
//
// Redis is that of REDIS_SERVER or on the PATH; without one, the other stores have to do, unless --redis says that it must be there.

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

// Keeps the job list for all servers: a list of entries that only grows, in a file or in Redis.
//
// An entry with a `fence` is refused if an earlier one has a larger fence. So a server that has
// lost the lock and does not know it yet can't do harm.

import { mkdirSync } from 'node:fs'
import { appendFile, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

export class StaleFenceError extends Error {
  constructor(fence, newest) {
    super(`fence ${fence} is older than ${newest}: another server has had the lock since`)
  }
}

/** Opens the journal. `createClient` is that of node-redis; only Redis needs it. */
export const openJournal = ({ name, redisUrl, dataDir }, createClient) =>
  redisUrl ? openRedis(createClient({ url: redisUrl }), name) : openFile(dataDir)

/** Keeps one JSON line per entry, for servers of one machine. */
async function openFile(folder) {
  mkdirSync(folder, { recursive: true })
  const path = join(folder, 'jobs.jsonl')
  await writeFile(path, '', { flag: 'a' })
  let size = -1
  let entries = []

  async function read() {
    const now = await stat(path)
    if (now.size !== size) {
      const text = await readFile(path, 'utf8')
      size = Buffer.byteLength(text)
      entries = text
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    }
    return entries
  }

  return {
    read,
    async append(entry) {
      // These are two steps, because a file can't compare. Redis, below, compares and writes in one
      // step.
      const newest = (await read()).findLast(({ fence }) => fence)?.fence ?? 0
      if (entry.fence < newest) throw new StaleFenceError(entry.fence, newest)
      await appendFile(path, `${JSON.stringify(entry)}\n`)
    },
    close: async () => {},
  }
}

const APPEND = `
local newest = redis.call('get', KEYS[2])
if ARGV[2] ~= '' then
  if newest and tonumber(ARGV[2]) < tonumber(newest) then return newest end
  redis.call('set', KEYS[2], ARGV[2])
end
redis.call('rpush', KEYS[1], ARGV[1])
return false`

async function openRedis(redis, name) {
  const list = `leasehold:${name}:journal`
  const newest = `leasehold:${name}:journal-fence`
  redis.on('error', (error) => console.error('Redis:', error.message))
  await redis.connect()
  let entries = []

  return {
    async read() {
      // Only new entries are read, unless the list was emptied. Several reads may be under way.
      // Their replies come in order, so the last one is the newest.
      if ((await redis.lLen(list)) < entries.length) entries = []
      const from = entries.length
      const more = await redis.lRange(list, from, -1)
      entries = [...entries.slice(0, from), ...more.map((line) => JSON.parse(line))]
      return entries
    },
    async append(entry) {
      const newer = await redis.eval(APPEND, {
        keys: [list, newest],
        arguments: [JSON.stringify(entry), entry.fence ? String(entry.fence) : ''],
      })
      if (newer) throw new StaleFenceError(entry.fence, newer)
    },
    close: () => redis.close(),
  }
}

// What the environment, or .env beside the example, says.

import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'

/**
 * @param {string} name which example: its lock, and its jobs in Redis, are its own
 * @param {string} here the `import.meta.url` of a file in its folder
 */
export function readConfig(name, here) {
  const beside = (file) => fileURLToPath(new URL(file, here))
  try {
    process.loadEnvFile(beside('.env'))
  } catch (error) {
    if (error.code !== 'ENOENT') throw error
  }
  const { PORT = '3000', REDIS_URL, JOB_MS = '1000', DATA_DIR, WORKER_ID } = process.env
  return {
    name,
    /** Who holds this does the jobs. */
    lockKey: `${name}-jobs`,
    /** Who holds this may add some. */
    addKey: `${name}-add`,
    port: Number(PORT),
    redisUrl: REDIS_URL,
    jobMs: Number(JOB_MS),
    dataDir: DATA_DIR ?? beside('data'),
    /** Which server this is, in the logs and on the page. */
    workerId: WORKER_ID ?? `server-${PORT}-${randomBytes(2).toString('hex')}`,
  }
}

// Reads the settings from the environment, or from .env next to the example.

import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'

/**
 * @param {string} name the name of the example, for its lock and its jobs in Redis
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
    /** The key of the lock whose holder does the jobs. */
    lockKey: `${name}-jobs`,
    /** The key of the lock whose holder may add jobs. */
    addKey: `${name}-add`,
    port: Number(PORT),
    redisUrl: REDIS_URL,
    jobMs: Number(JOB_MS),
    dataDir: DATA_DIR ?? beside('data'),
    /** The name of this server, in the logs and on the page. */
    workerId: WORKER_ID ?? `server-${PORT}-${randomBytes(2).toString('hex')}`,
  }
}

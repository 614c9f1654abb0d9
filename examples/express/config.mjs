// What the environment, or .env beside this file, says.

import { randomBytes } from 'node:crypto'
import { fileURLToPath } from 'node:url'

try {
  process.loadEnvFile(fileURLToPath(new URL('.env', import.meta.url)))
} catch (error) {
  if (error.code !== 'ENOENT') throw error
}

const { PORT = '3000', REDIS_URL, JOB_MS = '1000', DATA_DIR, WORKER_ID } = process.env

export const config = {
  port: Number(PORT),
  redisUrl: REDIS_URL,
  jobMs: Number(JOB_MS),
  dataDir: DATA_DIR ?? fileURLToPath(new URL('data', import.meta.url)),
  /** Which server this is, in the logs and on the page. */
  workerId: WORKER_ID ?? `server-${PORT}-${randomBytes(2).toString('hex')}`,
}

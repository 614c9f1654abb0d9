// Reads the settings from the environment, or from .env next to this file.

import { fileURLToPath } from 'node:url'

try {
  process.loadEnvFile(fileURLToPath(new URL('.env', import.meta.url)))
} catch (error) {
  if (error.code !== 'ENOENT') throw error
}

const {
  CRON = '0 3 * * *',
  TIME_ZONE = 'UTC',
  DATA_DIR,
  SERVER = `server-${process.pid}`,
  MAIL_MS = '100',
} = process.env

export const config = {
  cron: CRON,
  timeZone: TIME_ZONE,
  server: SERVER,
  /** How long it takes to send a mail. */
  mailMs: Number(MAIL_MS),
  dataDir: DATA_DIR ?? fileURLToPath(new URL('data', import.meta.url)),
}

// Connects to Redis for the service's own data. leasehold has its own connection.

import { createClient } from 'redis'
import type { Config } from './config.js'
import type { Log } from './log.js'

export type Redis = Awaited<ReturnType<typeof openRedis>>

export async function openRedis({ redisUrl }: Config, log: Log) {
  // While Redis is down, commands fail at once. Otherwise commands and their requests would wait
  // for Redis.
  const redis = createClient({ url: redisUrl, disableOfflineQueue: true })
  redis.on('error', (error) => log.error('Redis failed', { error }))
  await redis.connect()
  return redis
}

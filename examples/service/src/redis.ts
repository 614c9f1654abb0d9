// The connection to Redis for the service's own data. leasehold has one of its own.

import { createClient } from 'redis'
import type { Config } from './config.js'
import type { Log } from './log.js'

export type Redis = Awaited<ReturnType<typeof openRedis>>

export async function openRedis({ redisUrl }: Config, log: Log) {
  // While Redis is away, a command fails at once. Otherwise it would wait, and its request with it, until Redis is back.
  const redis = createClient({ url: redisUrl, disableOfflineQueue: true })
  redis.on('error', (error) => log.error('Redis failed', { error }))
  await redis.connect()
  return redis
}

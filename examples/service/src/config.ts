// Reads the settings from the environment.

import { hostname } from 'node:os'

export interface Config {
  readonly port: number
  /** Names this server in logs, in traces, and for `leasehold inspect`. */
  readonly instance: string
  readonly redisUrl: string
  /** How long a request waits for its lock, in ms. */
  readonly lockWait: number
  /** How long the imitated payment provider takes, in ms. */
  readonly paymentMs: number
  readonly reportCron: string
  readonly timeZone: string
  /** Whether the environment names a collector for spans. */
  readonly isTraced: boolean
}

/** Names every setting that is missing or wrong. */
export class ConfigError extends Error {
  constructor(problems: readonly string[]) {
    super(`The environment is not complete: ${problems.join('; ')}`)
    this.name = 'ConfigError'
  }
}

const isRedisUrl = (text: string) => URL.canParse(text) && /^rediss?:$/.test(new URL(text).protocol)

/** Reads the settings. Throws a {@link ConfigError}. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const problems: string[] = []

  /** Reads a whole number. An empty variable counts as missing. */
  function whole(name: string, ifMissing: number, least: number, most: number): number {
    const text = env[name]
    if (!text) return ifMissing
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= least && value <= most) return value
    problems.push(`${name} is ${JSON.stringify(text)}, and must be a whole number from ${least} to ${most}`)
    return ifMissing
  }

  const redisUrl = env.REDIS_URL || ''
  // The URL may have a password, so no message shows it.
  if (!redisUrl) problems.push('REDIS_URL is missing: set it to the URL of your Redis, such as redis://127.0.0.1:6379')
  else if (!isRedisUrl(redisUrl)) problems.push('REDIS_URL must be a URL that begins with redis:// or rediss://')

  const port = whole('PORT', 3000, 1, 65_535)
  const config = {
    port,
    instance: env.INSTANCE || `${hostname()}:${port}`,
    redisUrl,
    lockWait: whole('LOCK_WAIT_MS', 1_000, 0, 60_000),
    paymentMs: whole('PAYMENT_MS', 200, 0, 60_000),
    reportCron: env.REPORT_CRON || '0 3 * * *',
    timeZone: env.TIME_ZONE || 'UTC',
    isTraced: Boolean(env.OTEL_EXPORTER_OTLP_ENDPOINT || env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT),
  }
  if (problems.length > 0) throw new ConfigError(problems)
  return config
}

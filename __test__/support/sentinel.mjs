// A master, its replicas, and the sentinels that watch them.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { now, until } from './clock.mjs'
import { freePort } from './ports.mjs'
import { startRedis, temporaryFolder } from './servers.mjs'

/** The master's name for sentinels and in URLs. */
const NAME = 'leasehold'

/** Converts a reply that is a list of names and values to an object. */
const record = (words) => Object.fromEntries(words.flatMap((word, i) => (i % 2 ? [] : [[word, words[i + 1]]])))

/** Resolves when ROLE of the server is `role`. A replica also has to be connected to its master. */
const hasRole = (server, role) =>
  until(`${server.port} to be ${role}`, async () => {
    const [is, , , link] = await server.ask('ROLE').catch(() => [])
    return is === role && (role === 'master' || link === 'connected')
  })

class SentinelSystem {
  constructor(servers, sentinels) {
    this.servers = servers
    this.sentinels = sentinels
  }

  url() {
    return `redis-sentinel://${this.sentinels.map(({ port }) => `127.0.0.1:${port}`).join()}/${NAME}`
  }

  /** Returns the master, according to the first sentinel that runs and answers. */
  async master() {
    for (const sentinel of this.sentinels.filter(({ isRunning }) => isRunning)) {
      const [, port] = await sentinel.ask('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME).catch(() => [])
      const found = this.servers.find((server) => String(server.port) === port)
      if (found) return found
    }
    throw new Error('no sentinel knows the master')
  }

  /**
   * Resolves when the sentinels agree on a new master, and it has that role. Returns that master,
   * and how long this took.
   */
  async #followed(old, start) {
    const master = await until('a new master', async () => {
      const other = await this.master().catch(() => old)
      return other !== old && other
    })
    await hasRole(master, 'master')
    return { master, ms: now() - start }
  }

  /**
   * Makes the first sentinel promote a replica, as an administrator does. Calls `begun` when the
   * sentinel has begun. Returns { master, ms }.
   */
  async failOver(begun = () => {}) {
    const old = await this.master()
    const start = now()
    // A sentinel may have last checked the replicas too long ago, or a failover may be in progress.
    await until('the sentinels to agree', () =>
      this.sentinels[0].ask('SENTINEL', 'FAILOVER', NAME).catch(({ message }) => {
        if (!/^(NOGOODSLAVE|INPROG)/.test(message)) throw new Error(message)
      }),
    )
    begun()
    return this.#followed(old, start)
  }

  /** Kills the master, and waits for a new one. Returns { killed, master, ms }. */
  async loseMaster() {
    const killed = await this.master()
    const start = now()
    await killed.kill()
    return { killed, ...(await this.#followed(killed, start)) }
  }

  /**
   * Freezes the master, and waits for a new one. Returns { frozen, master, ms }. After a thaw, the
   * old master does not know of the failover.
   */
  async freezeMaster() {
    const frozen = await this.master()
    const start = now()
    frozen.freeze()
    return { frozen, ...(await this.#followed(frozen, start)) }
  }
}

/**
 * Starts a master with `count` replicas, and three sentinels. The sentinels consider the master
 * down after `downAfter` ms without an answer. Resolves when all of them know each other. Settings:
 * keep, args (of the Redis servers).
 */
export async function startSentinels(t, { count = 2, downAfter = 500, failoverTimeout = 1_000, ...settings } = {}) {
  const master = await startRedis(t, settings)
  const replica = () => startRedis(t, { ...settings, replicaOf: master.port })
  const replicas = await Promise.all(Array.from({ length: count }, replica))
  await Promise.all(replicas.map((replica) => hasRole(replica, 'slave')))
  const sentinels = await Promise.all(
    [0, 1, 2].map(async () => {
      const sentinel = join(temporaryFolder(t), 'sentinel.conf')
      const lines = [
        `sentinel monitor ${NAME} 127.0.0.1 ${master.port} 2`,
        `sentinel down-after-milliseconds ${NAME} ${downAfter}`,
        `sentinel failover-timeout ${NAME} ${failoverTimeout}`,
        `sentinel parallel-syncs ${NAME} 2`,
      ]
      writeFileSync(sentinel, `${lines.join('\n')}\n`)
      return startRedis(t, { sentinel, port: await freePort() })
    }),
  )
  await Promise.all(
    sentinels.map((sentinel) =>
      until('a sentinel to know all others', async () => {
        const known = record(await sentinel.ask('SENTINEL', 'MASTER', NAME))
        return known['num-slaves'] === String(count) && known['num-other-sentinels'] === '2'
      }),
    ),
  )
  return new SentinelSystem([master, ...replicas], sentinels)
}

// A Redis master, its replicas, and sentinels that watch them, on free ports of 127.0.0.1.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { until } from './clock.mjs'
import { atEnd } from './endings.mjs'
import { openResp } from './resp.mjs'
import { freePort, GUARD, startRedis, temporaryFolder } from './servers.mjs'

const NAME = 'the-master'

/** A sentinel that has begun to watch the master at `port`. Ends with the test, or with this process. */
async function startSentinel(t, port) {
  const folder = temporaryFolder(t)
  const own = await freePort()
  const file = join(folder, 'sentinel.conf')
  const watched = `sentinel monitor ${NAME} 127.0.0.1 ${port} 2`
  const times = `sentinel down-after-milliseconds ${NAME} 500\nsentinel failover-timeout ${NAME} 3000`
  writeFileSync(file, `port ${own}\nbind 127.0.0.1\ndir ${folder}\n${watched}\n${times}\n`)
  const program = process.env.REDIS_SERVER ?? 'redis-server'
  const guard = spawn('/bin/sh', ['-c', GUARD, 'guard', program, file, '--sentinel'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  guard.stdin.on('error', () => {})
  const gone = once(guard, 'exit')
  atEnd(t, async () => {
    guard.stdin.destroy()
    await gone
  })
  await new Promise((resolve, reject) => {
    createInterface(guard.stdout).on('line', (line) => line.includes('+monitor master') && resolve())
    gone.then(() => reject(new Error('the sentinel did not start')))
  })
  return { port: own, command: await openResp({ port: own }) }
}

/** A master, two replicas and three sentinels who know each other and the replicas. */
export async function startGroup(t) {
  const master = await startRedis(t)
  const replicas = await Promise.all([1, 2].map(() => startRedis(t, { replicaOf: master.port })))
  const sentinels = await Promise.all([1, 2, 3].map(() => startSentinel(t, master.port)))
  atEnd(t, () => {
    for (const { command } of sentinels) command.close()
  })
  const knows = async ({ command }) => {
    const words = await command('SENTINEL', 'MASTER', NAME)
    const of = (field) => words[words.indexOf(field) + 1]
    return of('num-other-sentinels') === '2' && of('num-slaves') === '2'
  }
  await until('the sentinels know each other', async () => (await Promise.all(sentinels.map(knows))).every(Boolean))
  return {
    master,
    replicas,
    store: `redis-sentinel://${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/${NAME}`,
    /** The port of the master, once the first of them names another than `old`. */
    async promoted(old) {
      const [{ command }] = sentinels
      const port = async () => Number((await command('SENTINEL', 'get-master-addr-by-name', NAME))[1])
      await until('a failover', async () => (await port()) !== old, 30_000)
      return port()
    },
  }
}

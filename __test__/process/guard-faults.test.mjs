// `leasehold run` is stopped or killed after a fault of its guard or of its command. No other
// command may begin before this one has ended.

import assert from 'node:assert/strict'
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { CLI, killIfThere, leasehold, start } from '../support/cli.mjs'
import { until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend, processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { asFirstProcess, noPidNamespaces } from '../support/namespaces.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

const [HURT_GUARD, ONE_GUARD] = ['hurt-guard', 'one-guard'].map((name) =>
  fileURLToPath(new URL(`fixtures/${name}.cjs`, import.meta.url)),
)

const UPTIME = fileURLToPath(new URL('../../dist/cli/uptime.js', import.meta.url))

const storeOf = (t) => `sqlite:${join(temporaryFolder(t), 'locks.db')}`
const guardOf = (pid) => processes().find(({ parent, args }) => parent === pid && args.includes('leasehold-guard'))

/** Stops a process, and kills it when the test is over. */
function stop(t, pid) {
  process.kill(pid, 'SIGSTOP')
  atEnd(t, () => killIfThere(pid))
}

/** Runs leasehold, and prints its exit code and the zombies that it leaves. */
const REAPS_ONE = `
  const { readdirSync, readFileSync } = require('node:fs')
  const { status } = require('node:child_process').spawnSync(process.execPath, process.argv.slice(1))
  const pids = readdirSync('/proc').filter((name) => Number(name) > 0)
  console.log(status, pids.filter((pid) => / Z /.test(readFileSync('/proc/' + pid + '/stat', 'latin1'))))`

/**
 * Runs leasehold until it waits, and ends it by SIGTERM. Prints the signal that ended leasehold and
 * the processes that it leaves.
 */
const LEAVES = `
  const { readdirSync, readFileSync } = require('node:fs')
  const child = require('node:child_process').spawn(process.execPath, process.argv.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] })
  child.stderr.once('data', () => child.kill('SIGTERM'))
  child.once('exit', (code, signal) => {
    const pids = readdirSync('/proc').filter((name) => Number(name) > 0 && Number(name) !== process.pid)
    console.log(signal, pids.map((pid) => readFileSync('/proc/' + pid + '/stat', 'latin1')))
  })`

const isStopped = (pid) => /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'))

const skip = process.platform === 'linux' ? false : 'needs /proc'
// The tests mostly wait for ttls.
describe('leasehold run, stopped or killed after another fault', { skip, timeout: 240_000, concurrency: 2 }, () => {
  for (const [ttl, signal] of [
    [3, 'SIGKILL'],
    [9, 'SIGKILL'],
    [9, 'SIGSTOP'],
  ])
    test(`the guard was killed: another one ends the command, ttl ${ttl} s, ${signal}`, async (t) => {
      const words = ['--ttl', `${ttl}s`, '--grace', '1s']
      const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, words })
      const { pid } = guardOf(contended.first.pid)
      process.kill(pid, 'SIGKILL')
      const next = await until('another guard to watch', () => {
        const guard = guardOf(contended.first.pid)
        // It has its title when it has started.
        return guard?.pid !== pid && guard?.args.trim() === 'leasehold-guard' && guard
      })
      process.kill(contended.first.pid, signal)
      atEnd(t, () => killIfThere(contended.first.pid))
      await assertInTurn(t, { ...contended, soon: contended.soon + ttl * 1_000 })
      // A stopped leasehold reaps no process.
      killIfThere(contended.first.pid)
      await until('the guard to end', () => !processes().some((each) => each.pid === next.pid))
    })

  test('the guard is stopped: the system continues it when leasehold is killed', async (t) => {
    const words = ['--ttl', '9s', '--grace', '1s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, words })
    const { pid } = guardOf(contended.first.pid)
    stop(t, pid)
    await until('the guard to be stopped', () => isStopped(pid))
    contended.first.signal('SIGKILL')
    await assertInTurn(t, contended)
  })

  test('the guard is stopped: leasehold continues it at the next renewal', async (t) => {
    const words = ['--ttl', '6s', '--grace', '1s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, words })
    const { pid } = guardOf(contended.first.pid)
    stop(t, pid)
    await until('the guard to be stopped', () => isStopped(pid))
    await until('the guard to continue', () => !isStopped(pid))
    stop(t, contended.first.pid)
    await assertInTurn(t, { ...contended, soon: contended.soon + 6_000 })
  })

  test('the guard is stopped: it ends with the command', async (t) => {
    const contended = await contend(t, storeOf(t), 'k', { words: ['--ttl', '60s'] })
    const { pid } = guardOf(contended.first.pid)
    stop(t, pid)
    contended.first.signal('SIGTERM')
    await assertInTurn(t, contended)
    await until('the guard to end', () => !processes().some((each) => each.pid === pid))
  })

  test('the guard is stopped while it starts: it is continued, and the command runs', async (t) => {
    const ran = join(temporaryFolder(t), 'ran')
    const env = { NODE_OPTIONS: `--require ${HURT_GUARD}`, SIGNAL: 'SIGSTOP' }
    const { code, stderr } = await leasehold(t, ['run', 'k', '-s', storeOf(t), '--', 'touch', ran], env).ended
    assert.equal(code, 0, stderr)
    assert.ok(existsSync(ran))
  })

  test('the guard was killed and no other can be started: leasehold says so once', async (t) => {
    const env = { NODE_OPTIONS: `--require ${ONE_GUARD}` }
    const words = ['run', 'k', '--ttl', '1s', '--verbose', '-s', storeOf(t), '--', 'sleep', '3']
    const command = leasehold(t, words, env)
    await command.says(/the command runs/, 'stderr')
    process.kill(guardOf(command.pid).pid, 'SIGKILL')
    const { code, stderr } = await command.ended
    assert.equal(code, 0, stderr)
    assert.equal(stderr.match(/the guard ended, and no other could be started/g)?.length, 1, stderr)
  })

  test('leasehold was stopped and continues, and the guard that ends the command is killed', async (t) => {
    const words = ['--ttl', '5s', '--grace', '30s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, words })
    const { pid } = guardOf(contended.first.pid)
    stop(t, contended.first.pid)
    await contended.journal.seen('first', 'clean')
    contended.first.signal('SIGCONT')
    process.kill(pid, 'SIGKILL')
    await assertInTurn(t, { ...contended, soon: contended.soon + 5_000 })
    assert.equal((await contended.first.ended).code, 70)
  })

  test('leasehold was stopped and continues, and the guard that ends the command is stopped', async (t) => {
    const words = ['--ttl', '5s', '--grace', '30s']
    const contended = await contend(t, storeOf(t), 'k', { clean: 8_000, words })
    const { pid } = guardOf(contended.first.pid)
    stop(t, contended.first.pid)
    await contended.journal.seen('first', 'clean')
    contended.first.signal('SIGCONT')
    stop(t, pid)
    await assertCleanedUp(contended, await assertInTurn(t, contended), 8_000)
  })

  test('in a container whose first process reaps no others, the guard does not stay a zombie', {
    skip: noPidNamespaces,
  }, (t) => {
    const words = [CLI, 'run', 'k', '-s', storeOf(t), '--', 'true']
    const { stdout, stderr } = spawnSync(
      asFirstProcess[0],
      [...asFirstProcess.slice(1), process.execPath, '-e', REAPS_ONE, ...words],
      {
        encoding: 'utf8',
      },
    )
    assert.equal(stdout, '0 []\n', stderr)
  })

  for (const [what, env] of [
    ['the guard of a leasehold that waits', {}],
    ['a guard that is stopped while it starts', { NODE_OPTIONS: `--require ${HURT_GUARD}`, SIGNAL: 'SIGSTOP' }],
  ])
    test(`in such a container, a signal ends ${what}, too`, { skip: noPidNamespaces }, async (t) => {
      const store = storeOf(t)
      const locks = createLockClient({ store })
      atEnd(t, () => locks.close())
      await locks.acquire('k')
      const words = [process.execPath, '-e', LEAVES, CLI, 'run', 'k', '--verbose', '-s', store, '--', 'true']
      const { stdout, stderr } = spawnSync(asFirstProcess[0], [...asFirstProcess.slice(1), ...words], {
        encoding: 'utf8',
        env: { ...process.env, ...env },
      })
      assert.equal(stdout, 'SIGTERM []\n', stderr)
    })

  test('the guard knows the time if /proc has only the processes', { skip: noPidNamespaces }, () => {
    const mount = 'mount -t proc -o subset=pid proc /proc && test ! -e /proc/uptime && exec "$@"'
    const ask = `console.log(require(${JSON.stringify(UPTIME)}).uptime() > 0)`
    const words = ['--pid', '--fork', '--mount', 'sh', '-c', mount, 'sh', process.execPath, '-e', ask]
    const { stdout, stderr } = spawnSync('unshare', words, { encoding: 'utf8' })
    assert.equal(stdout, 'true\n', stderr)
  })

  test('leasehold is killed after the end of its command and before the release: its guard releases the lock', async (t) => {
    const server = await startRedis(t)
    const locks = createLockClient({ store: server.url() })
    atEnd(t, () => locks.close())
    const end = join(temporaryFolder(t), 'end')
    const words = ['--ttl', '60s', '--verbose', '-s', server.url(), '--', 'sh', '-c']
    const first = leasehold(t, ['run', 'k', ...words, `until [ -e ${end} ]; do sleep 0.05; done`])
    await first.says(/the command runs/, 'stderr')
    server.freeze()
    writeFileSync(end, '')
    await first.says(/the command ended/, 'stderr')
    first.signal('SIGKILL')
    await first.exited
    server.thaw()
    await (await locks.acquire('k', { wait: 20_000 })).release()
  })

  test('the guard was killed during the wait for the lock: another one watches over the command', async (t) => {
    const store = storeOf(t)
    const first = await contend(t, store, 'k', {})
    const { pid } = first.second
    process.kill(guardOf(pid).pid, 'SIGKILL')
    first.first.signal('SIGTERM')
    assert.equal((await first.second.ended).code, 0)
  })

  /** Reports many renewals to a stopped guard, and then the end of the command. */
  const REPORTS = `
    const { Guard } = require(process.argv[1])
    const ticket = { key: 'k', token: 't', fence: 1, ttl: 10_000, most: 1 }
    const guard = new Guard({})
    const command = { pid: Number(process.argv[2]), start: undefined, leads: true, run: 'none' }
    guard.watch({ ticket, grace: 0 }, { ttl: 10_000, remaining: 10_000 }, command).then(() => {
      process.once('SIGUSR2', () => {
        for (let i = 0; i < 10_000; i++) guard.renewed()
        guard.dismiss()
        clearTimeout(alive)
      })
      console.log('watched')
    })
    const alive = setTimeout(() => {}, 60_000)`

  test('the guard is stopped: leasehold ends without it, and the guard does not end the command', async (t) => {
    const command = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
    atEnd(t, () => command.kill('SIGKILL'))
    const file = fileURLToPath(new URL('../../dist/cli/guard.js', import.meta.url))
    const reporter = start(t, process.execPath, ['-e', REPORTS, file, String(command.pid)])
    await reporter.says(/watched/)
    const { pid } = guardOf(reporter.pid)
    stop(t, pid)
    reporter.signal('SIGUSR2')
    assert.deepEqual(await reporter.exited, { code: 0, signal: null })
    await until('the guard to end', () => !processes().some((each) => each.pid === pid))
    assert.equal(command.signalCode, null)
    process.kill(command.pid, 0)
  })

  /** Kills a guard, and lets it watch when its output has ended, before Node reports its end. */
  const ENDS = `
    const { readFileSync } = require('node:fs')
    const { ChildProcess } = require('node:child_process')
    const { spawn } = ChildProcess.prototype
    const children = []
    ChildProcess.prototype.spawn = function (options) {
      children.push(this)
      return spawn.call(this, options)
    }
    const { Guard } = require(process.argv[1])
    const ticket = { key: 'k', token: 't', fence: 1, ttl: 10_000, most: 1 }
    const command = { pid: Number(process.argv[2]), start: undefined, leads: true, run: 'none' }
    const guard = new Guard({})
    children[0].stdout.once('close', async () => {
      console.log('watches', await guard.watch({ ticket, grace: 0 }, { ttl: 10_000, remaining: 10_000 }, command))
      guard.dismiss()
    })
    const timer = setInterval(() => {
      if (readFileSync(\`/proc/\${children[0].pid}/comm\`, 'latin1') !== 'leasehold-guard\\n') return
      clearInterval(timer)
      children[0].kill('SIGKILL')
    }, 10)`

  test('the guard ends when it is about to watch: another one watches', async (t) => {
    const command = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
    atEnd(t, () => command.kill('SIGKILL'))
    const file = fileURLToPath(new URL('../../dist/cli/guard.js', import.meta.url))
    const { code, stdout } = await start(t, process.execPath, ['-e', ENDS, file, String(command.pid)]).ended
    assert.equal(stdout, 'watches true\n')
    assert.equal(code, 0)
  })

  test('leasehold is stopped, its command ends by itself, and leasehold is killed: what it left goes on', async (t) => {
    const store = storeOf(t)
    const command = ['sh', '-c', 'setsid sleep 60 & echo left $!; sleep 1']
    const running = leasehold(t, ['run', 'k', '-s', store, '--ttl', '8s', '--grace', '0', '--', ...command])
    const pid = Number((await running.says(/^left (\d+)$/m))[1])
    atEnd(t, () => killIfThere(pid))
    const guard = guardOf(running.pid)
    running.signal('SIGSTOP')
    const other = leasehold(t, ['run', 'k', '-s', store, '--wait', '30s', '--', 'true'])
    assert.equal((await other.ended).code, 0)
    running.signal('SIGKILL')
    await until('the guard to end', () => !processes().some((each) => each.pid === guard.pid))
    assert.ok(processes().some((each) => each.pid === pid))
  })

  test('leasehold asked the command to end (--max-hold), and its main process ended by itself', async (t) => {
    const words = ['--ttl', '6s', '--max-hold', '6s', '--grace', '30s']
    const wrap = ['sh', '-c', 'trap "sleep 1; exit 0" TERM; setsid "$0" "$@" & wait']
    const contended = await contend(t, storeOf(t), 'k', { clean: 9_000, wrap, words })
    await contended.journal.seen('first', 'clean')
    stop(t, contended.first.pid)
    await assertCleanedUp(contended, await assertInTurn(t, contended), 9_000)
  })

  test('a signal after the command has ended by itself does not end the daemon that it left behind', async (t) => {
    const end = join(temporaryFolder(t), 'end')
    const script = `setsid sleep 60 > /dev/null 2>&1 & echo $!; until [ -e ${end} ]; do sleep 0.05; done`
    const command = leasehold(t, ['run', 'k', '--verbose', '-s', storeOf(t), '--', 'sh', '-c', script])
    const daemon = Number((await command.says(/\d+/))[0])
    atEnd(t, () => killIfThere(daemon))
    const [, pid] = await command.says(/the command runs as (\d+)/, 'stderr')
    // Node hears of the signal before it hears of the command's end.
    process.kill(command.pid, 'SIGSTOP')
    writeFileSync(end, '')
    await until('the command to end', () => /\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1')))
    command.signal('SIGTERM')
    command.signal('SIGCONT')
    assert.equal((await command.exited).code, 0)
    assert.doesNotMatch(readFileSync(`/proc/${daemon}/stat`, 'latin1'), /\) Z /)
  })

  test('only the first thread of the command has ended', async (t) => {
    const [folder, store] = [temporaryFolder(t), storeOf(t)]
    const [source, program] = [join(folder, 'threads.c'), join(folder, 'threads')]
    writeFileSync(source, THREADS)
    execFileSync('cc', ['-pthread', '-o', program, source])
    const first = leasehold(t, ['run', 'k', '-s', store, '--ttl', '5s', '--grace', '1s', '--', program])
    const pid = Number((await first.says(/^(\d+)$/m))[1])
    atEnd(t, () => killIfThere(pid))
    await until('the first thread to end', () => /\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1')))
    first.signal('SIGSTOP')
    // Each thread has a folder there.
    const look = `test $(ls /proc/${pid}/task | wc -l) -le 1`
    const second = leasehold(t, ['run', 'k', '-s', store, '--wait', '40s', '--', 'sh', '-c', `${look} 2>&1`])
    assert.equal((await second.ended).code, 0, 'the command still ran')
  })
})

const THREADS = `
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *work(void *unused) { for (;;) pause(); }
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  printf("%d\\n", getpid());
  fflush(stdout);
  pthread_exit(NULL);
}
`

// `leasehold run` is stopped or killed after another fault: of its guard, of the guard's timer, of
// its successor, or of its command. No other command may begin before this one has ended.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { killIfThere, leasehold } from '../support/cli.mjs'
import { until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend, processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const HURT_CHILD = fileURLToPath(new URL('fixtures/hurt-child.cjs', import.meta.url))
const MISSED_SIGNAL = fileURLToPath(new URL('fixtures/missed-signal.cjs', import.meta.url))
/** A shell that runs a command in another session, where only a successor finds the command. */
const SETSID = ['sh', '-c', 'setsid "$0" "$@" & wait']

const storeOf = (t) => `sqlite:${join(temporaryFolder(t), 'locks.db')}`
const childOf = (parent, text) => processes().find((each) => each.parent === parent && each.args.includes(text))
const guardOf = (pid) => childOf(pid, 'leasehold-guard')
const successorOf = (pid) => processes().find(({ parent, args }) => parent === pid && /successor\.js \d+$/.test(args))

/** Stops leasehold, and continues it when the test is over: then it ends. */
function stop(t, { first }) {
  first.signal('SIGSTOP')
  atEnd(t, () => killIfThere(first.pid))
}

const skip = process.platform === 'linux' ? false : 'needs /proc'
// The tests mostly wait for ttls.
describe('leasehold run, stopped or killed after another fault', { skip, timeout: 240_000, concurrency: 2 }, () => {
  for (const [what, signal, ofTimer] of [
    ['timer was killed', 'SIGKILL', () => undefined],
    ['timer is stopped', 'SIGSTOP', () => undefined],
    ["timer's `sleep` is stopped", 'SIGSTOP', (timer) => childOf(timer.pid, 'sleep')],
  ])
    test(`the guard's ${what}: the guard starts another one`, async (t) => {
      const words = ['--ttl', '9s', '--grace', '1s']
      const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, words })
      const guard = guardOf(contended.first.pid)
      const timer = await until('the timer', () => guardOf(guard.pid))
      const { pid } = (await until('its sleep', () => childOf(timer.pid, 'sleep'))) && (ofTimer(timer) ?? timer)
      process.kill(pid, signal)
      atEnd(t, () => killIfThere(pid))
      await until('another timer', () => processes().some((each) => isTimer(each, guard) && each.pid !== timer.pid))
      stop(t, contended)
      await assertInTurn(t, { ...contended, soon: contended.soon + 9_000 })
    })

  test('the successor that started before the command was killed: leasehold starts another one', async (t) => {
    const words = ['--ttl', '6s', '--grace', '1s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, wrap: SETSID, words })
    const { pid } = await until('the successor', () => successorOf(contended.first.pid))
    process.kill(pid, 'SIGKILL')
    const next = await until('another successor', () => {
      const successor = successorOf(contended.first.pid)
      return successor?.pid === pid ? undefined : successor
    })
    await until('its guard to watch', () => guardOf(Number(/\d+$/.exec(next.args)[0])))
    contended.first.signal('SIGKILL')
    await assertInTurn(t, contended)
  })

  test('the successor missed the signal of the guard: the guard sends it again', async (t) => {
    const words = ['--ttl', '6s', '--grace', '3s']
    const env = { NODE_OPTIONS: `--require ${MISSED_SIGNAL}` }
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, wrap: SETSID, words, env })
    stop(t, contended)
    await assertInTurn(t, { ...contended, soon: contended.soon + 6_000 })
  })

  test('leasehold asked the command to end (--max-hold), and its main process ended by itself', async (t) => {
    const words = ['--ttl', '6s', '--max-hold', '6s', '--grace', '30s']
    const wrap = ['sh', '-c', 'trap "sleep 1; exit 0" TERM; setsid "$0" "$@" & wait']
    const contended = await contend(t, storeOf(t), 'k', { clean: 9_000, wrap, words })
    await contended.journal.seen('first', 'clean')
    stop(t, contended)
    await assertCleanedUp(contended, await assertInTurn(t, contended), 9_000)
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
    // Its other thread is a folder here.
    const look = `test $(ls /proc/${pid}/task | wc -l) -le 1`
    const second = leasehold(t, ['run', 'k', '-s', store, '--wait', '40s', '--', 'sh', '-c', `${look} 2>&1`])
    assert.equal((await second.ended).code, 0, 'the command still ran')
  })

  for (const [what, ttl] of [
    ['leasehold-guard', '10s'],
    ['successor.js', '2s'],
  ])
    test(`${what} is stopped while it starts: it is continued, and the command runs`, async (t) => {
      const ran = join(temporaryFolder(t), 'ran')
      const env = { NODE_OPTIONS: `--require ${HURT_CHILD}`, HURT: what, SIGNAL: 'SIGSTOP' }
      const words = ['run', 'k', '-s', storeOf(t), '--ttl', ttl, '--', 'touch', ran]
      const { code, stderr } = await leasehold(t, words, env).ended
      assert.equal(code, 0, stderr)
      assert.ok(existsSync(ran))
    })
})

const isTimer = ({ parent, args }, guard) => parent === guard.pid && args.includes('leasehold-guard')

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

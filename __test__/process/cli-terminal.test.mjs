// `leasehold` on a real terminal: its questions, its tables and Ctrl-C. Also `leasehold` without a
// reader of its output.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, existsSync, openSync, readFileSync, readSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { CLI, isThere, killIfThere, leasehold } from '../support/cli.mjs'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'
import { CTRL_C, CTRL_D, CTRL_Q, CTRL_S, onTerminal } from '../support/terminal.mjs'

/**
 * Returns a client, the folder of its store, and the variables that make `leasehold` use that
 * store.
 */
function open(t) {
  const folder = temporaryFolder(t)
  const store = `sqlite:${join(folder, 'locks.db')}`
  const locks = createLockClient({ store, name: 'the test' })
  atEnd(t, () => locks.close())
  return { locks, folder, env: { LEASEHOLD_URL: store } }
}

function kill(pid) {
  killIfThere(pid)
}

/** Writes to a pipe that does not block, until it is full. */
function fill(pipe) {
  for (let size = 65_536; size >= 1; ) {
    try {
      writeSync(pipe, Buffer.alloc(size, '\n'))
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error
      size /= 2
    }
  }
}

/** Returns up to 64 kB of what is in a pipe that does not block. */
function readAll(pipe) {
  const read = Buffer.alloc(65_536)
  try {
    return read.toString('utf8', 0, readSync(pipe, read))
  } catch (error) {
    if (error.code === 'EAGAIN') return ''
    throw error
  }
}

const skip = process.platform === 'win32' && 'Windows has no such terminals'

describe('leasehold on a terminal', { timeout: 60_000, skip }, () => {
  for (const [what, typed, isTaken] of [
    ['y', 'y\r', true],
    ['Yes', 'Yes\r', true],
    ['n', 'n\r', false],
    ['nothing', '\r', false],
    ['Ctrl-C', CTRL_C, false],
    ['Ctrl-D', CTRL_D, false],
    ['Ctrl-C after a y', `y${CTRL_C}`, false],
  ]) {
    test(`release --force asks the user, and obeys the answer ${what}`, async (t) => {
      const { locks, env } = open(t)
      const lease = await locks.acquire('nightly')
      const asking = onTerminal(t, ['release', 'nightly', '--force'], env)
      await asking.says(/the test.*Its holder may still be at work.*Take it away\? \[y\/N\] /s)
      asking.type(typed)
      const { code, stdout } = await within('the end of leasehold', asking.ended)
      const said = stdout.slice(stdout.indexOf('[y/N] ')).split('\r\n').slice(1)
      const end = isTaken ? '"nightly" was taken away' : 'nothing was done'
      assert.deepEqual([code, said.at(-2), said.at(-1)], [isTaken ? 0 : 1, end, ''], stdout)
      assert.doesNotMatch(stdout, /Error|\n +at /)
      assert.equal((await locks.inspect('nightly')) === null, isTaken)
      if (!isTaken) await lease.release()
    })
  }

  test('run kills its command and releases the lock although Ctrl-S has stopped the terminal', async (t) => {
    const { locks, folder, env } = open(t)
    const begun = join(folder, 'begun')
    const work = `trap '' TERM; echo $$ > ${begun}; while :; do sleep 0.1; done`
    const words = ['--verbose', '--ttl', '3s', '--max-hold', '3s', '--grace', '500ms', '--', 'sh', '-c', work]
    const running = onTerminal(t, ['run', 'k', ...words], env)
    const command = Number(await until('the command to run', () => existsSync(begun) && readFileSync(begun, 'utf8')))
    atEnd(t, () => killIfThere(command))
    running.type(CTRL_S)
    const lease = await locks.acquire('k', { wait: 20_000 })
    assert.ok(!isThere(command), 'the command still ran')
    assert.doesNotMatch(running.stdout, /--max-hold/, 'the terminal was not stopped')
    await lease.release()
    running.type(CTRL_Q)
    const { code, stdout } = await within('the end of leasehold', running.ended)
    assert.equal(code, 70, stdout)
    assert.match(stdout, /held for 3\.0 s \(--max-hold\): stopping the command/)
  })

  for (const [what, flags] of [
    ['', 0],
    [' that does not block', constants.O_NONBLOCK],
  ])
    test(`run kills its command and releases the lock although its standard error is a full pipe${what}`, async (t) => {
      const { locks, folder, env } = open(t)
      const [begun, fifo] = [join(folder, 'begun'), join(folder, 'fifo')]
      execFileSync('mkfifo', [fifo])
      const pipe = openSync(fifo, constants.O_RDWR | flags)
      const filler = openSync(fifo, constants.O_WRONLY | constants.O_NONBLOCK)
      const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK)
      atEnd(t, () => [pipe, filler, reader].forEach(closeSync))
      const work = `trap '' TERM; echo $$ > ${begun}; while :; do sleep 0.1; done`
      const words = ['--verbose', '--ttl', '9s', '--max-hold', '9s', '--grace', '500ms', '--', 'sh', '-c', work]
      const running = spawn(process.execPath, [CLI, 'run', 'k', ...words], {
        env: { ...process.env, ...env },
        stdio: ['ignore', 'ignore', pipe],
      })
      const ended = once(running, 'exit')
      atEnd(t, () => running.kill('SIGKILL'))
      const command = Number(await until('the command to run', () => existsSync(begun) && readFileSync(begun, 'utf8')))
      atEnd(t, () => killIfThere(command))
      fill(filler)
      const lease = await locks.acquire('k', { wait: 20_000 })
      assert.ok(!isThere(command), 'the command still ran')
      await lease.release()
      let said = ''
      await until('the end of leasehold', () => {
        said += readAll(reader)
        return running.exitCode !== null
      })
      assert.deepEqual(await ended, [70, null])
      assert.match(said + readAll(reader), /held for 9\.0 s \(--max-hold\): stopping the command/)
    })

  test('watch draws a table again at each change, and Ctrl-C ends it with exit code 0', async (t) => {
    const { locks, env } = open(t)
    const watching = onTerminal(t, ['watch', '--interval', '50ms'], env)
    /** Waits for a cleared terminal and a table with these rows. */
    const drawn = (held, rows) =>
      watching.says(new RegExp(`\u001b\\[H\u001b\\[J[^\u001b]*${held} held\r\n\r\n${rows}(?=\u001b|$)`))
    await drawn(0, '\r\n')
    const lease = await locks.acquire('nightly')
    await drawn(1, 'KEY[^\r]*\r\nnightly +alone +the test[^\r]*\r\n')
    const other = await locks.acquire(`deploy:${'x'.repeat(100)}`)
    const [table] = await drawn(2, '(KEY[^\r]*\r\n)deploy:x+…\r\nnightly [^\r]*\r\n')
    for (const line of table.split('\r\n').slice(2)) assert.ok(line.length <= 70, line)
    await Promise.all([lease.release(), other.release()])
    const before = watching.stdout.length
    await until('an empty table', () => / 0 held\r\n\r\n\r\n/.test(watching.stdout.slice(before)))
    watching.type(CTRL_C)
    const { code, signal } = await within('the end of leasehold', watching.ended)
    assert.deepEqual([code, signal], [0, null])
  })

  test('watch ends the bold head of a table that is wider than the terminal', async (t) => {
    const { locks, env } = open(t)
    await locks.acquire('x'.repeat(100))
    const watching = onTerminal(t, ['watch', '--looks', '1'], { ...env, NO_COLOR: '' })
    const { code } = await within('the end of leasehold', watching.ended)
    assert.equal(code, 0)
    const head = watching.stdout.split('\r\n').find((line) => line.includes('KEY'))
    assert.equal(head, `\u001b[1m${'KEY'.padEnd(69)}…\u001b[0m`)
  })

  test('if a nested leasehold is killed, the lock stays held until its command is gone, too', {
    skip: process.platform !== 'linux' && 'other systems do not show the processes of a command',
  }, async (t) => {
    const { locks, env } = open(t)
    const command = "trap '' TERM; echo $$ ready; while :; do sleep 0.05; done"
    const inner = [process.execPath, CLI, 'run', 'inner', '--grace', '20s', '--', 'sh', '-c', command]
    const words = ['run', 'outer', '--ttl', '2s', '--max-hold', '4s', '--grace', '500ms', '--', ...inner]
    const running = onTerminal(t, words, env)
    const [, pid] = await running.says(/(\d+) ready/)
    atEnd(t, () => kill(Number(pid)))
    const lease = await locks.acquire('outer')
    assert.ok(!isThere(Number(pid)))
    await lease.release()
  })

  test('if Ctrl-C ends the command at once, the lock stays held until the processes that it started are gone, too', {
    skip: process.platform !== 'linux' && 'other systems do not show the processes of a command',
  }, async (t) => {
    const { locks, env } = open(t)
    const job = 'trap "" INT TERM; echo $$ ready; while :; do sleep 0.05; done'
    const command = ['sh', '-c', '"$@" & wait', 'sh', 'sh', '-c', job]
    const running = onTerminal(t, ['run', 'k', '--grace', '500ms', '--', ...command], env)
    const [, pid] = await running.says(/(\d+) ready/)
    atEnd(t, () => kill(Number(pid)))
    running.type(CTRL_C)
    const lease = await locks.acquire('k')
    assert.ok(!isThere(Number(pid)))
    await lease.release()
  })

  test('a closed terminal does not end a command that ignores SIGHUP, and the lock is released', async (t) => {
    const { locks, folder, env } = open(t)
    const command = `trap '' HUP; cd ${folder}; echo $PPID ready; until [ -e go ]; do sleep 0.05; done; echo done > end`
    const running = onTerminal(t, ['run', 'k', '--verbose', '--', 'sh', '-c', command], env)
    const [, pid] = await running.says(/(\d+) ready/)
    running.signal('SIGKILL')
    await running.exited
    writeFileSync(join(folder, 'go'), '')
    await until('leasehold to end', () => !isThere(Number(pid)))
    assert.equal(readFileSync(join(folder, 'end'), 'utf8'), 'done\n')
    assert.equal(await locks.inspect('k'), null)
  })
})

describe('leasehold without a reader of its output', { timeout: 60_000 }, () => {
  for (const how of ['--verbose', '--json']) {
    test(`run ${how} lets the command run on, and has its exit code`, async (t) => {
      const { locks, folder, env } = open(t)
      const lease = await locks.acquire('k')
      const command = `cd ${folder}; echo unread; until [ -e go ]; do sleep 0.05; done; echo done > end; exit 7`
      const running = leasehold(t, ['run', 'k', how, '--', 'sh', '-c', `trap '' PIPE; ${command}`], env)
      await running.says(/waiting/, 'stderr')
      for (const name of ['stdout', 'stderr']) running.process[name].destroy()
      await lease.release()
      await until('the command to have the lock', async () => (await locks.inspect('k'))?.fence > lease.fence)
      writeFileSync(join(folder, 'go'), '')
      assert.deepEqual(await within('the end of leasehold', running.exited), { code: 7, signal: null })
      assert.ok(existsSync(join(folder, 'end')))
      assert.equal(await locks.inspect('k'), null)
    })
  }

  test('run still stops the command when the lock is lost, and its exit code is 70', async (t) => {
    const { locks, folder, env } = open(t)
    const end = join(folder, 'end')
    // A shell may report that its sleep was ended.
    const command = `trap '' PIPE; trap 'echo stopped > ${end}; exit 0' TERM; echo ready; while :; do sleep 0.05; done`
    const running = leasehold(t, ['run', 'k', '--ttl', '500ms', '-v', '--', 'sh', '-c', command], env)
    await running.says(/ready/)
    for (const name of ['stdout', 'stderr']) running.process[name].destroy()
    await locks.forceRelease('k')
    assert.deepEqual(await within('the end of leasehold', running.exited), { code: 70, signal: null })
    assert.ok(existsSync(end))
  })

  test('ls fails with its usual exit code, and watch ends with 0', async (t) => {
    const { locks, env } = open(t)
    const failing = leasehold(t, ['ls', '--store', 'redis://127.0.0.1:1', '--store-timeout', '200ms'])
    failing.process.stderr.destroy()
    assert.deepEqual(await within('the end of leasehold', failing.exited), { code: 69, signal: null })
    const lease = await locks.acquire('first')
    const watching = leasehold(t, ['watch', '--interval', '50ms'], env)
    await watching.says(/"first" held/)
    watching.process.stdout.destroy()
    // The release makes watch write.
    await lease.release()
    assert.deepEqual(await within('the end of leasehold', watching.exited), { code: 0, signal: null })
  })
})

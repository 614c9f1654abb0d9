// Measures one subject and prints the figures as one line of JSON. Started by run.mjs, once per
// subject and round:
//   node measure.mjs '{"name":"redlock","port":6390,"directory":"/tmp/x","effort":1}'
import { readFileSync } from 'node:fs'
import { listening } from './listening.mjs'
import { subjects } from './peers.mjs'

/** How many pairs are under way at a time in the second phase. */
const WIDTH = 256

/** Returns how the CPU time of the JS thread is read here. */
export function cpuSource() {
  try {
    schedstat()
    return { name: 'the kernel’s figure for the main thread (schedstat)', read: schedstat }
  } catch {
    if (process.threadCpuUsage) {
      return { name: 'process.threadCpuUsage()', read: () => total(process.threadCpuUsage()) }
    }
    return { name: 'process.cpuUsage(), which counts every thread', read: () => total(process.cpuUsage()) }
  }
}

/** Returns the CPU time of the main thread so far, in µs. The main thread's id is the process's. */
function schedstat() {
  return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ', 1)[0]) / 1000
}

const total = ({ user, system }) => user + system

/** Runs one pair after the other. Shows how long a single caller waits. */
async function oneAtATime({ acquire, release }, cpu, pairs, limit) {
  const took = new Float64Array(pairs)
  const until = performance.now() + limit
  const before = cpu()
  let done = 0
  for (let now = performance.now(); done < pairs && now < until; done++) {
    await release(await acquire(`one-${done % 100}`))
    const after = performance.now()
    took[done] = after - now
    now = after
  }
  const used = cpu() - before
  const sorted = took.subarray(0, done).sort()
  const at = (share) => sorted[Math.min(done - 1, Math.floor(done * share))] * 1000
  return { p50: at(0.5), p99: at(0.99), cpuOne: used / done }
}

const rethrow = (error) => {
  throw error
}

/**
 * Runs `width` callers at a time, each with a key of its own. Shows the throughput of the process.
 */
export async function manyAtATime({ acquire, release }, cpu, pairs, limit, width = WIDTH, failed = rethrow) {
  const before = cpu()
  const began = performance.now()
  const until = began + limit
  let started = 0
  let done = 0
  await Promise.all(
    Array.from({ length: width }, async (_, caller) => {
      const key = `many-${caller}`
      while (started < pairs && performance.now() < until) {
        started++
        try {
          await release(await acquire(key))
          done++
        } catch (error) {
          failed(error)
        }
      }
    }),
  )
  const wall = performance.now() - began
  return { rate: (done / wall) * 1000, cpuMany: (cpu() - before) / done }
}

async function measure({ name, port, directory, effort }) {
  const subject = [...subjects, ...listening].find((candidate) => candidate.name === name)
  const { read } = cpuSource()
  const pair = await subject.open({ port, directory })

  // Warm up the JIT, but not for too long if the subject is slow.
  await oneAtATime(pair, read, 2000, 1500 * effort)
  const one = await oneAtATime(pair, read, 10_000 * effort, 5000 * effort)
  await manyAtATime(pair, read, 20_000 * effort, 1000 * effort)
  const many = await manyAtATime(pair, read, 100_000 * effort, 5000 * effort)

  await pair.close()
  return { ...one, ...many }
}

if (process.argv[1] === import.meta.filename) {
  console.log(JSON.stringify(await measure(JSON.parse(process.argv[2]))))
}

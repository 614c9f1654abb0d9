// Some contenders for one lock, in a process of their own. Started by waiting.mjs:
//   node contender.mjs '{"name":"redlock","port":6390,"directory":"/tmp","contenders":4,"hold":0}'
// Writes `ready` to its standard output, begins at the word `go`, ends at `stop`, and then prints
// one line of JSON: the turns of each contender, and with `stamps` when each turn began and ended,
// in µs of the machine's monotonic clock.

import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { waiting } from './waiters.mjs'

const { name, port, directory, contenders, hold = 0, stamps = false } = JSON.parse(process.argv[2])
const words = createInterface({ input: process.stdin })
const us = () => Number(process.hrtime.bigint()) / 1000

const { acquire, release, close } = await waiting(name).open({ port, directory })
const turns = new Array(contenders).fill(0)
const stamped = []
let stopped = false

console.log('ready')
await once(words, 'line')
words.once('line', () => {
  stopped = true
})

await Promise.all(
  turns.map(async (_, contender) => {
    while (!stopped) {
      let held
      try {
        held = await acquire()
      } catch {
        continue // The library gave up, as some do with any setting. Try again.
      }
      const began = us()
      if (hold) await sleep(hold / 2 + Math.random() * hold)
      turns[contender]++
      if (stamps) stamped.push([began, us()])
      await release(held)
    }
  }),
)
console.log(JSON.stringify({ turns, stamps: stamped }))
await close()
words.close()

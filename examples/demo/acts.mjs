// The acts of the demo, in order.

import { setTimeout as sleep } from 'node:timers/promises'

/** How many jobs a holder does before something happens to it. */
const TURN = 10

/** Resolves with the next process that begins to work, and the time. */
const nextHolder = (racers) =>
  Promise.race(racers.map(async (racer) => ({ racer, at: (await racer.next('working')).at })))

/**
 * Lets two processes compete. The holder is stopped, the next one is killed, and a third finishes.
 * Resolves with the times of both hand-overs, in ms.
 */
export async function compete(start, [first, second, third], timeline) {
  const two = [start(first), start(second)]
  const failure = Promise.race(two.map((racer) => racer.failure))
  const played = async () => {
    const { racer: holder } = await nextHolder(two)
    const [other] = two.filter((racer) => racer !== holder)
    await holder.next('done', () => holder.done === TURN)

    timeline.say(`${' '.repeat(10)}── ${holder.name} is asked to stop`)
    const next = other.next('working')
    const released = holder.next('released')
    holder.stop()
    const stopped = { released: (await released).at, next: (await next).at }

    // The third process waits while the second works, so that it can follow when that one is
    // killed.
    const last = start(third)
    await Promise.all([last.next('waiting'), other.next('done', () => other.done === TURN)])
    // The next job has begun by now, and is not done yet.
    await sleep(50)
    const follows = last.next('working')
    timeline.say(`${' '.repeat(10)}── ${other.name} is killed, in the middle of a job`)
    const killed = await other.kill()
    const at = (await follows).at
    await last.next('finished')
    await last.stop()
    // The holder may learn of its release before the next process has the lock, or after that.
    return { released: Math.max(0, stopped.next - stopped.released), killed: at - killed }
  }
  return Promise.race([played(), failure])
}

/** Lets all processes work at the same time, without the lock. */
export async function race(start, names) {
  const racers = names.map(start)
  const finished = racers.map((racer) => racer.next('finished'))
  await Promise.race([Promise.all(finished), ...racers.map((racer) => racer.failure)])
  await Promise.all(racers.map((racer) => racer.stop()))
}

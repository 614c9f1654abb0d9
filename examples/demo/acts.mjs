// What happens in the demo, one thing after the other.

import { setTimeout as sleep } from 'node:timers/promises'

/** How many jobs a holder does before something happens to it. */
const TURN = 10

/** Resolves with the next process that begins to work, and when. */
const nextHolder = (racers) =>
  Promise.race(racers.map(async (racer) => ({ racer, at: (await racer.next('working')).at })))

/** Two compete; the holder is stopped, the next one killed, and a third finishes. Resolves with the hand-overs, ms. */
export async function compete(start, [first, second, third], timeline) {
  const two = [start(first), start(second)]
  const failure = Promise.race(two.map((racer) => racer.failure))
  const told = async () => {
    const { racer: holder } = await nextHolder(two)
    const [other] = two.filter((racer) => racer !== holder)
    await holder.next('done', () => holder.done === TURN)

    timeline.say(`${' '.repeat(10)}── ${holder.name} is asked to stop`)
    const next = other.next('working')
    const released = holder.next('released')
    holder.stop()
    const stopped = { released: (await released).at, next: (await next).at }

    // It waits while the holder works: whoever is killed has somebody to follow it.
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
    // Whoever gives it back hears of that after the next one has it, or before.
    return { released: Math.max(0, stopped.next - stopped.released), killed: at - killed }
  }
  return Promise.race([told(), failure])
}

/** All of them work at the same time: nobody asks for the lock. */
export async function race(start, names) {
  const racers = names.map(start)
  const finished = racers.map((racer) => racer.next('finished'))
  await Promise.race([Promise.all(finished), ...racers.map((racer) => racer.failure)])
  await Promise.all(racers.map((racer) => racer.stop()))
}

// Faults at random, for a while.

import { now, sleep } from '../clock.mjs'

/** Takes one of `list` at random. */
const take = (list, random) => list.splice(Math.floor(random() * list.length), 1)[0]

/** All of `list` at random, then all of it again: a short storm, too, has as many kinds as it can. */
function* shuffled(list, random) {
  for (;;) {
    for (const rest = [...list]; rest.length; ) yield take(rest, random)
  }
}

/**
 * While `going()`, every `every` ms as many random faults of the list `faults` as keep no more than `atMost` of the `nodes` out
 * of order; each lasts `least` to `most` ms, or longer where the fault itself says so. Resolves when all have healed:
 * [{ node, fault, began, healed }], in the order in which they healed. All chance comes from `random`.
 */
export async function storm({ nodes, faults, random, going, every, atMost, least, most }) {
  const broken = new Set()
  const healed = []
  const running = []
  const next = shuffled(faults, random)

  const strike = async (node, fault, lasts) => {
    const began = now()
    await fault.begin(node)
    await sleep(Math.max(lasts, fault.least))
    await fault.heal(node)
    healed.push({ node: node.name, fault: fault.name, began, healed: now() })
    broken.delete(node)
  }

  while (going()) {
    while (broken.size < atMost) {
      const whole = nodes.filter((each) => !broken.has(each))
      const node = take(whole, random)
      broken.add(node)
      const struck = strike(node, next.next().value, least + random() * (most - least))
      // One that fails fails all, but not before somebody awaits it.
      struck.catch(() => {})
      running.push(struck)
    }
    await sleep(every)
  }
  await Promise.all(running)
  return healed
}

// Injects random faults for a while.

import { now, sleep } from '../clock.mjs'

/** Removes a random element from `list`, and returns it. */
const take = (list, random) => list.splice(Math.floor(random() * list.length), 1)[0]

/**
 * Yields all elements of `list` in random order, and then again: so a short run, too, has as many
 * kinds of faults as possible.
 */
function* shuffled(list, random) {
  for (;;) {
    for (const rest = [...list]; rest.length; ) yield take(rest, random)
  }
}

/**
 * While `going()`, begins random faults of the list `faults` every `every` ms, so that at most
 * `atMost` of the `nodes` are broken at a time. Each fault lasts `least` to `most` ms, or longer if
 * the fault requires it. Resolves when all have healed: [{ node, fault, began, healed }], in the
 * order of the heals. All random numbers come from `random`.
 */
export async function injectFaults({ nodes, faults, random, going, every, atMost, least, most }) {
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
      // A rejection fails the whole run, but only when it is awaited later.
      struck.catch(() => {})
      running.push(struck)
    }
    await sleep(every)
  }
  await Promise.all(running)
  return healed
}

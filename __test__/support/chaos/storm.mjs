// Faults at random, for a while.

import { now, sleep } from '../clock.mjs'

const pick = (list, random) => list[Math.floor(random() * list.length)]

/**
 * While `going()`, every `every` ms as many random faults of the list `faults` as keep no more than `atMost` of the `nodes` out
 * of order; each lasts `least` to `most` ms, or longer where the fault itself says so. Resolves when all have healed:
 * [{ node, fault, began, healed }], in the order in which they healed. All chance comes from `random`.
 */
export async function storm({ nodes, faults, random, going, every, atMost, least, most }) {
  const broken = new Set()
  const healed = []
  const running = []

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
      const node = pick(
        nodes.filter((each) => !broken.has(each)),
        random,
      )
      broken.add(node)
      const struck = strike(node, pick(faults, random), least + random() * (most - least))
      // One that fails fails all, but not before somebody awaits it.
      struck.catch(() => {})
      running.push(struck)
    }
    await sleep(every)
  }
  await Promise.all(running)
  return healed
}

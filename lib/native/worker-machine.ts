// The state machine of the lock worker, which is native code. It gets a WorkerEvent and
// returns WorkerEffects (protocol.ts).

import { loadAddon, type WorkerMachine } from './addon'

export function createMachine(): WorkerMachine {
  return new (loadAddon().WorkerMachine)()
}

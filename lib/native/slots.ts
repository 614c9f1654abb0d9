// Slots: small numbers that name pending operations and leases. Only these numbers cross to native
// code.

// Symbols, because a lease has a slot and its users must not see these methods.
export const noteRecord: unique symbol = Symbol('leasehold.noteRecord')
export const deliverRecord: unique symbol = Symbol('leasehold.deliverRecord')

/**
 * Receives the records about its slot. Records arrive in batches: all are noted before any is
 * delivered.
 */
export interface SlotOwner {
  /** Takes over the new state. Runs no code of the user. */
  [noteRecord](kind: number, a: number, b: number): void
  /** Reports the new state to the user. */
  [deliverRecord](kind: number, a: number, b: number): void
}

/** The owner of each slot, by its number. */
export const slots: (SlotOwner | undefined)[] = []

/** Gives out the numbers of slots, and takes them back. */
export class SlotNumbers {
  readonly #free: number[] = []
  #count = 0
  /** The slots that get one more record after their last one; see {@link abandon}. */
  readonly #abandoned = new Set<number>()

  /** Whether every slot has got its last record. */
  get areAllFree(): boolean {
    return this.#free.length === this.#count
  }

  next(): number {
    return this.#free.pop() ?? this.#count++
  }

  /** Notes that one more record follows the slot's last one. */
  abandon(slot: number): void {
    this.#abandoned.add(slot)
  }

  /** Takes back a slot after its last record. */
  free(slot: number): void {
    if (!this.#abandoned.delete(slot)) this.#free.push(slot)
  }
}

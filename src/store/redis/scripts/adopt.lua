-- Moves leases to the tokens of adopters.
--
-- KEYS     the locks, then their :fence keys, in the same order
-- ARGV[1]  the ttl in ms
-- ARGV[2]  the ms for which the :fence keys live
-- ARGV[3]  the new holder's name
-- ARGV[4]  how the leases end. "given": after the ttl. "noted": after the ttl, or the smaller ttl
--          in the note of the lease. "kept": the script only moves the leases, and keeps their
--          ends and their holders' names
-- then     a token for each lock
-- then     an adopter for each lock
-- then     a word for each lock. For a move, a further token: a lease of this token stays as it is.
--          For an adoption, the fence that a quorum has decided on, or 0
-- then     for moves, a number for each lock: the ms after which the moved lease ends at the
--          latest, or 0
--
-- Answers one value for each lock: if the adopter (or the further token) has the lease, a list of
-- its first fence, the last fence that is reserved with it, 1 if it is shared and else 0, and the
-- ttl in its note or 0. A move adds two values: the smaller one of the first fence and the fence
-- with which the lease was granted, and the ms for which the lease still lives, or -1 if the
-- further token has the lease. Otherwise 0 if no token holds the lock, -1 if another token holds
-- it, or the server's error. If another adopter claims the lease, a move answers that adopter's
-- claim.
local count = #KEYS / 2
local time = redis.call('TIME')
local rules = (function(now_us)
  --[[include rules]]
  --[[include adoption]]
  return rules
end)(time[1] * 1000000 + time[2])
local ttl, life, name, ends = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local answers = {}
for i = 1, count do
  local token, adopter, word = ARGV[4 + i], ARGV[4 + count + i], ARGV[4 + 2 * count + i]
  local lock, side = KEYS[i], KEYS[count + i]
  local done, answer
  if ends == 'kept' then
    local most = tonumber(ARGV[4 + 3 * count + i])
    done, answer = pcall(rules.move, lock, side, token, adopter, life, word, most)
  else
    local fence = tonumber(word)
    local ask = { ttl = ttl, life = life, name = name, noted = ends == 'noted', fence = fence }
    done, answer = pcall(rules.adopt, lock, side, token, adopter, ask)
  end
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  answers[i] = answer
end
return answers

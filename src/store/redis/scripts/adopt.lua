-- Moves leases to the tokens of heirs.
-- KEYS: the locks, then their fence keys.
-- ARGV: the ttl and the life of the fence keys in ms, the new holder's name, how the leases end,
-- one token for each lock, one heir for each lock, and one more word for each lock.
-- How the leases end: "given": after the ttl. "noted": after the ttl, or the smaller ttl in the
-- note of the lease. "kept": the script only moves the leases, and keeps their ends and their
-- holders' names.
-- For a move, the last word is a further token, and a lease of this token stays as it is. For an
-- adoption, the last word is the fence that a quorum has decided on, or 0.
-- Answers one value for each lock: if the heir (or the further token) has the lease, a list of its
-- first fence, the last fence that is reserved with it, 1 if it is shared and else 0, and the ttl
-- in its note or 0. Otherwise 0 if nobody holds the lock, -1 if another token holds it, or the
-- server's error. If another heir claims the lease, a move answers the claim of that heir.
local count = #KEYS / 2
local time = redis.call('TIME')
local rules = (function(now_us) --[[rules]] end)(time[1] * 1000000 + time[2])
local ttl, life, name, ends = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local answers = {}
for i = 1, count do
  local token, heir, word = ARGV[4 + i], ARGV[4 + count + i], ARGV[4 + 2 * count + i]
  local lock, side = KEYS[i], KEYS[count + i]
  local done, answer
  if ends == 'kept' then
    done, answer = pcall(rules.move, lock, side, token, heir, life, word)
  else
    local ask = { ttl = ttl, life = life, name = name, noted = ends == 'noted', fence = tonumber(word) }
    done, answer = pcall(rules.adopt, lock, side, token, heir, ask)
  end
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  answers[i] = answer
end
return answers

-- Moves leases to the tokens of heirs.
-- KEYS: the locks, then their fence keys.
-- ARGV: the ttl and the life of the fence keys in ms, the new holder's name, one token for each
-- lock, and one heir for each lock. If more tokens follow, one for each lock, the script only moves
-- the leases: their ends and their holders' names stay. A lease that such a token owns stays as it
-- is.
-- Answers one value for each lock: 1 if the heir (or the further token) has the lease, 0 if nobody
-- holds the lock, -1 if another token holds it, or the server's error. A move answers
-- the claim of another heir if that one claims the lease.
local count = #KEYS / 2
local time = redis.call('TIME')
local rules = (function(now_us) --[[rules]] end)(time[1] * 1000000 + time[2])
local ttl, life, name = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local answers = {}
for i = 1, count do
  local token, heir = ARGV[3 + i], ARGV[3 + count + i]
  local other = ARGV[3 + 2 * count + i]
  local done, answer = pcall(rules.adopt, KEYS[i], KEYS[count + i], token, heir, ttl, life, name, other)
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  answers[i] = answer
end
return answers

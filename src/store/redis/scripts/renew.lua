-- Prolongs leases, and never shortens them; or detaches them.
--
-- KEYS     the locks, then their :fence keys, in the same order
-- ARGV[1]  the ttl in ms
-- ARGV[2]  the life in ms that a :fence key needs with it
-- ARGV[3]  the life in ms that a :fence key with less gets: a little more, so that not every
--          renewal has to prolong it
-- ARGV[4]  how many more fences are wanted; -1 to detach the leases
-- then     a token for each lock
-- then     to detach, for each lock the fence and the ttl in ms of its lease
--
-- Answers one value for each lock: 1 if the token holds it, 0 if no token does, -1 if another token
-- does; or the server's error. If fences are wanted, a list of the first of them and the number of
-- waiters takes the place of 1.
local try = redis.pcall
local count = #KEYS / 2
local ttl, life, long_life = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local fences = tonumber(ARGV[4])
local rules
local answers = {}

-- MGET and not GET: to MGET, a key that is no string is missing. The rules look closer at a lock
-- that does not belong to the token.
local owners = try('MGET', unpack(KEYS, 1, count))
if owners.err then return owners end
for i = 1, count do
  local lock, side, token = KEYS[i], KEYS[count + i], ARGV[i + 4]
  local answer = 1
  if owners[i] ~= token or fences ~= 0 then
    if not rules then
      local time = redis.call('TIME')
      rules = (function(now_us)
        --[[include rules]]
        --[[include renewal]]
        --[[include detachment]]
        return rules
      end)(time[1] * 1000000 + time[2])
    end
    local done
    if fences < 0 then
      local fence, own_ttl = tonumber(ARGV[3 + count + 2 * i]), ARGV[4 + count + 2 * i]
      done, answer = pcall(rules.detach, lock, side, token, ttl, life, fence, own_ttl)
    else
      done, answer = pcall(rules.renew, lock, side, token, ttl, life, fences)
    end
    if not done and type(answer) ~= 'table' then answer = { err = answer } end
  else
    -- A delayed renewal must not shorten a later one that overtook it. The renewal writes even
    -- then: a read-only replica has to refuse it, and must not answer from old data that the lease
    -- lives. And a WAIT behind the renewal must not end before replicas have the lease.
    local left = try('PTTL', lock)
    -- An error is a table. For example, the user may have no right to PTTL.
    answer = type(left) == 'table' and left or try('PEXPIRE', lock, math.max(ttl, left))
    -- The fence outlives the lease.
    left = try('PTTL', side)
    if type(left) == 'number' and left >= 0 and left < life then try('PEXPIRE', side, long_life) end
  end
  answers[i] = answer
end
return answers

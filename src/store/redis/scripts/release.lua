-- Ends leases. KEYS has a lock for each request, ARGV a token.
-- Answers one value for each: 1 if the token held the lock, 2 if nobody did, 3 if somebody else does.
local KEYS, ARGV = KEYS, ARGV
local answers, ended, gone = {}, {}, {}
local owners = redis.call('MGET', unpack(KEYS))

for i = 1, #KEYS do
  local lock, owner = KEYS[i], owners[i]
  if not owner or gone[lock] then
    answers[i] = 2
  elseif owner ~= ARGV[i] then
    answers[i] = 3
  else
    answers[i] = 1
    gone[lock] = true
    ended[#ended + 1] = lock
  end
end
if #ended > 0 then redis.call('DEL', unpack(ended)) end
return answers

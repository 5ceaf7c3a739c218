-- Ending: the claim on a job is ended, and the next one is made in the same call.

--@include repeated

-- The claim that a finishing worker asks for in the same call, with ARGV from an index on: lists, token, lease, classes.
local function claim_next(first)
  if not ARGV[first] then
    return {'nothing'}
  end
  local lists, token, lease = lists_from(ARGV[first]), ARGV[first + 1], tonumber(ARGV[first + 2])
  local reply = claim_first(lists, token, lease, classes_from(ARGV[first + 3]))
  return reply.err and {'nothing'} or reply
end

-- The reply to a caller who ended its claim already, and asks again, as the first reply was lost; nil to others. The
-- next claim may be on the same job, once more.
-- `outcome` is the one of a job that was put back in a queue; `first` is where the next claim begins in ARGV.
local function ended_before(job, token, outcome, first)
  local hash = redis.call('HMGET', job.key, '_last_claim', 'status', 'end', 'delayed_until', '_claim_token')
  local next_token = ARGV[first + 1]
  local is_next = next_token and hash[5] == next_token
  if token == '' or hash[1] ~= token and not is_next then
    return nil
  end
  local is_back, is_failed = hash[2] == 'w' or hash[2] == 'd' or is_next, hash[2] == 'e'
  outcome = is_back and outcome or is_failed and 'error' or 'done'
  local upcoming = next_token and claimed_with(lists_from(ARGV[first]), next_token, classes_from(ARGV[first + 3]))
  return cjson.encode({outcome, hash[3] or '', is_back and hash[4] or '', {}, upcoming or claim_next(first)})
end

-- The reply of every script that ends a claim, as JSON, which clients read much faster than so many values; `first` is
-- where the next claim begins in ARGV.
local function ended(outcome, finish, delayed_until, first)
  local changes = reindex
  reindex = {}
  return cjson.encode({outcome, finish, delayed_until, changes, claim_next(first)})
end

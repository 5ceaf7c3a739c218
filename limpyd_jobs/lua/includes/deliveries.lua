-- Deliveries: what a worker is told of a job that it claimed.

local RETRY_FIELDS = {'_retry_policy', '_uncounted_tries', 'added', '_requeued_at'}

-- What the worker needs to decide whether the job is tried again if it fails: the policy of the job, how many of its
-- tries do not count, since when its age does. `first` is where RETRY_FIELDS begin in values of the hash.
local function retry_of(hash, first)
  return {hash[first] or '', hash[first + 1] or '', hash[first + 3] or hash[first + 2] or ''}
end

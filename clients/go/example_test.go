package pinfold_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/pinfold/pinfold/clients/go"
	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

// Run a command, and collect its result where it went to the background.
func Example() {
	ctx := context.Background()
	client, err := pinfold.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	agent, err := client.OpenAgent(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	answer, err := agent.Run(ctx, pinfold.Shell("sleep 3; echo done"))
	if err != nil {
		log.Fatal(err)
	}
	result := answer.Result
	if answer.InBackground() {
		waited, err := agent.WaitExact(ctx, answer.CallID)
		if err != nil {
			log.Fatal(err)
		}
		result = waited.First()
	}
	fmt.Println(result.GetText())
}

// A supervisor on another machine, with TLS and a token.
func ExampleDial() {
	client, err := pinfold.Dial(context.Background(),
		pinfold.WithAddress("build.example.org:7300"),
		pinfold.WithTLS(pinfold.TLS{CA: "ca.pem", Certificate: "me.pem", Key: "me.key"}),
		pinfold.WithToken(os.Getenv("PINFOLD_TOKEN")))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// Follow the output of a call as it comes.
func ExampleAgent_Output() {
	ctx := context.Background()
	client, err := pinfold.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	agent := client.Agent("me")
	call, err := agent.Start(ctx, pinfold.Shell("make test"))
	if err != nil {
		log.Fatal(err)
	}
	output := agent.Output(ctx, call.GetCallId())
	defer output.Close()
	if _, err := io.Copy(os.Stdout, output); err != nil {
		log.Fatal(err)
	}
}

// End a call and see what it took.
func ExampleAgent_Cancel() {
	ctx := context.Background()
	client, err := pinfold.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	agent := client.Agent("me")
	_, err = agent.Cancel(ctx, "call-7", pinfold.WithReason("superseded"), pinfold.WithGrace(time.Second))
	if err != nil && !errors.Is(err, pinfold.ErrCallAlreadyCanceled) {
		log.Fatal(err)
	}
	result, err := agent.Ended(ctx, "call-7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.GetReceipt().GetEnded(), "processes ended by", result.GetReceipt().GetEndedBy())
}

// Watch everything that is decided, over restarts of the supervisor.
func ExampleClient_Events() {
	ctx := context.Background()
	client, err := pinfold.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for event, err := range client.Events(ctx, 1, pinfold.Named("call.*", "tool.*")) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.GetRevision(), event.GetName(), event.GetAgentId(), event.GetCallId())
	}
}

// An agent's loop: the model's tool calls go to the supervisor as they are.
func ExampleAgent_Work() {
	ctx := context.Background()
	client, err := pinfold.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Agent("me").Work(ctx, func(ctx context.Context, agent *pinfold.Agent, turn *pinfold.Turn) (string, error) {
		// Here a model would read turn.Text() and ask for tools.
		answer, err := agent.CallTool(ctx, "call-1", "shell", `{"command": "ls"}`)
		if err != nil {
			return "", err
		}
		if answer.GetKind() == pb.ToolAnswerKind_TOOL_ANSWER_KIND_ERROR {
			return "it went wrong: " + answer.GetText(), nil
		}
		return answer.GetText(), nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
